"""Contact sheet of the questions of `maskcon ask`: each image beside the kinds that it may belong to."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from maskcon.discovery.kinds import Kinds
from maskcon.discovery.questions import Question
from maskcon.discovery.summary import summarise
from maskcon.report.contact_sheet import FAINT, GAP, GROUND, INK, TILE, write_line
from maskcon.report.gallery import thumbnail

KINDS_SHOWN, IMAGES_SHOWN = 3, 3  # kinds beside an image, typical images of each kind
TEXT, HEAD = 34, 40  # pixels above a row, and above all


def shown_paths(questions: Sequence[Question], kinds: Kinds) -> set[str]:
    """Return the images that the sheet shows."""
    typical = _typical(kinds)
    beside = {
        path
        for question in questions
        for name in question.choices[:KINDS_SHOWN]
        for path in typical[question.coarse, name]
    }
    return beside | {question.path for question in questions}


def questions_png(
    questions: Sequence[Question], kinds: Kinds, images: Mapping[str, NDArray[np.uint8]]
) -> bytes:
    """Draw the questions, numbered as in their file: the image, then typical ones of its kind and of the nearest two.

    Args:
        images: path -> image [C, h, w]; the place of a missing one stays empty.
    """
    typical = _typical(kinds)
    step = TILE + GAP
    group = IMAGES_SHOWN * step + 3 * GAP
    width, height = step + 4 * GAP + KINDS_SHOWN * group, TEXT + step
    sheet = Image.new("RGB", (width, HEAD + max(1, len(questions)) * height), GROUND)
    draw = ImageDraw.Draw(sheet)
    write_line(draw, (GAP, 8), "Which kind is the image on the left?", 15, INK, width)
    for row, question in enumerate(questions):
        top = HEAD + row * height
        write_line(
            draw, (GAP, top), f"{row + 1}. {question.coarse}: {question.path}", 12, INK, width - 2 * GAP
        )
        places = [(question.path, 0)]
        for column, name in enumerate(question.choices[:KINDS_SHOWN]):
            left = step + 4 * GAP + column * group
            label = f"{name} (now)" if name == question.kind else name
            write_line(draw, (left, top + 17), label, 12, FAINT, group - 2 * GAP)
            shown = [path for path in typical[question.coarse, name] if path != question.path]
            places += [(path, left + place * step) for place, path in enumerate(shown[:IMAGES_SHOWN])]
        for path, left in places:
            if path in images:
                sheet.paste(thumbnail(images[path], TILE, GROUND), (left, top + TEXT))
    content = io.BytesIO()
    sheet.save(content, format="PNG")
    return content.getvalue()


def _typical(kinds: Kinds) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the typical images of each kind, one more than is shown: the question itself may be among them."""
    return {
        (summary.coarse, kind.name): kind.typical[: IMAGES_SHOWN + 1]
        for summary in summarise(kinds)
        for kind in summary.kinds
    }
