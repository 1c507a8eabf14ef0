from __future__ import annotations

import itertools

import pytest
import torch

from maskcon import transforms
from maskcon.transforms.autoaugment import CIFAR10_TABLE, GEOMETRIC, NAMES, NOTHING, AutoAugment, magnitude
from tests.transforms import oracles

SIZE = 32
# The paper's table again, in its own notation, typed independently of the module's: a slip in either shows.
PAPER_TABLE = """
Invert,0.1,7 Contrast,0.2,6; Rotate,0.7,2 TranslateX,0.3,9; Sharpness,0.8,1 Sharpness,0.9,3;
ShearY,0.5,8 TranslateY,0.7,9; AutoContrast,0.5,8 Equalize,0.9,2; ShearY,0.2,7 Posterize,0.3,7;
Color,0.4,3 Brightness,0.6,7; Sharpness,0.3,9 Brightness,0.7,9; Equalize,0.6,5 Equalize,0.5,1;
Contrast,0.6,7 Sharpness,0.6,5; Color,0.7,7 TranslateX,0.5,8; Equalize,0.3,7 AutoContrast,0.4,8;
TranslateY,0.4,3 Sharpness,0.2,6; Brightness,0.9,6 Color,0.2,8; Solarize,0.5,2 Invert,0.0,3;
Equalize,0.2,0 AutoContrast,0.6,0; Equalize,0.2,8 Equalize,0.6,4; Color,0.9,9 Equalize,0.6,6;
AutoContrast,0.8,4 Solarize,0.2,8; Brightness,0.1,3 Color,0.7,0; Solarize,0.4,5 AutoContrast,0.9,3;
TranslateY,0.9,9 TranslateY,0.7,9; AutoContrast,0.9,2 Solarize,0.8,3; Equalize,0.8,8 Invert,0.1,3;
TranslateY,0.7,9 AutoContrast,0.9,1
"""
BENDING = ("shear_x", "shear_y", "rotate")


def all_rows() -> torch.Tensor:
    """A row of five uniforms for each sub-policy, each choice of applied operations and each sign: [400, 5]."""
    choices = itertools.product(range(25), (0.0, 0.999), (0.0, 0.999), (0.2, 0.7), (0.2, 0.7))
    return torch.tensor([[(number + 0.5) / 25, *rest] for number, *rest in choices])


def strong_views(images: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """cifar-strong with the whole image as the crop and no mirror, on 0..255."""
    still = torch.full((rows.shape[0], 23), 0.5)
    still[:, 0] = 0.99999  # area: all
    still[:, 22] = 0.9  # no mirror
    return transforms.policy("cifar-strong")(images, torch.cat([still, rows], dim=1), size=SIZE) * 255


def expected_view(image: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """PIL's result, geometry first."""
    steps = sorted(oracles.autoaugment_steps(row), key=lambda step: step[0] not in GEOMETRIC)
    view = oracles.to_pil(image)
    for name, amount, sign in steps:
        view = oracles.apply_operation(view, name, amount, sign)
    return oracles.from_pil(view)


@pytest.mark.parametrize("channels", [1, 3])
def test_every_sub_policy_matches_pil_from_the_same_uniforms(channels: int) -> None:
    rows = all_rows()
    images = oracles.smooth_images(rows.shape[0], channels, SIZE, SIZE, seed=7)
    found = strong_views(images, rows)
    for number, row in enumerate(rows):
        names = [name for name, _, _ in oracles.autoaugment_steps(row)]
        difference = (found[number] - expected_view(images[number], row)).abs()
        if not set(names) & set(BENDING):
            assert difference.max() < 1e-2, names  # shifts by whole pixels and all colours are exact
        elif set(names) <= set(GEOMETRIC):
            # Bilinear, rounded by PIL; a pixel whose source lies on the very border may fall to either side.
            assert (difference > 1.01).any(dim=0).sum() <= 3, names
        else:  # bent, then recoloured: the colour is exact on what the bending alone gives
            (name, amount, sign) = next(
                step for step in oracles.autoaugment_steps(row) if step[0] not in GEOMETRIC
            )
            alone = row.clone()
            alone[1 + names.index(name)] = 0.999
            bent = strong_views(images[number, None], alone[None])[0]
            clear = (bent % 1 - 0.5).abs() > 1e-3  # a half may be rounded up or down
            whole = oracles.to_pil(bent.round().to(torch.uint8))
            expected = oracles.from_pil(oracles.apply_operation(whole, name, amount, sign))
            assert (found[number] - expected)[clear].abs().max() < 1e-2, names
            assert clear.float().mean() > 0.9


@pytest.mark.parametrize("turned", [0, 1])
def test_colour_before_a_shift_equals_the_published_order(turned: int) -> None:
    """Sub-policy 10 (colour, then translate): the margin's grey has no colour to change, so the swap is exact."""
    row = torch.tensor([(10 + 0.5) / 25, 0.0, 0.0, 0.2 + 0.5 * turned, 0.2])
    image = oracles.smooth_images(1, 3, SIZE, SIZE)
    view = oracles.to_pil(image[0])
    for name, amount, sign in oracles.autoaugment_steps(row):
        view = oracles.apply_operation(view, name, amount, sign)
    assert (strong_views(image, row.unsqueeze(0))[0] - oracles.from_pil(view)).abs().max() < 1e-3


def test_two_opposite_shifts_leave_both_margins_filled() -> None:
    row = torch.tensor([[(21 + 0.5) / 25, 0.0, 0.0, 0.2, 0.7]])  # translate_y up, then down
    images = torch.zeros(1, 1, SIZE, SIZE, dtype=torch.uint8)
    view = strong_views(images, row)[0, 0, :, 0].round()
    assert 128 in view.tolist()
    assert 0 in view.tolist()
    assert torch.equal(view, expected_view(images[0], row[0])[0, :, 0])


def test_table_equals_the_paper() -> None:
    def operation(text: str) -> tuple[str, float, int]:
        name, probability, index = text.split(",")
        for paper, ours in (
            ("TranslateX", "translate_x"),
            ("TranslateY", "translate_y"),
            ("ShearY", "shear_y"),
        ):
            name = ours if name == paper else name
        return name.lower(), float(probability), int(index)

    expected = tuple(tuple(operation(part) for part in pair.split()) for pair in PAPER_TABLE.split(";"))
    assert expected == CIFAR10_TABLE


def test_magnitudes_equal_the_published_steps() -> None:
    for name in NAMES:
        for index in range(10):
            if name not in ("autocontrast", "equalize", "invert"):
                assert magnitude(name, index) == pytest.approx(oracles.magnitude(name, index), abs=1e-12)


def test_sub_policies_are_drawn_per_sample_and_evenly() -> None:
    uniforms = torch.rand(25_000, 5, generator=torch.Generator().manual_seed(0))
    number = (uniforms[:, 0] * 25).long()
    assert number.bincount(minlength=25).min() > 850
    choice = AutoAugment().choose(uniforms)
    for index, pair in enumerate(CIFAR10_TABLE):
        for turn, (_, probability, _) in enumerate(pair):
            share = (choice.operations[number == index, turn] != NOTHING).float().mean()
            assert abs(share - probability) < 0.06


def test_rotation_keeps_its_sign_and_shear_does_not() -> None:
    uniforms = torch.rand(20_000, 5, generator=torch.Generator().manual_seed(0))
    choice = AutoAugment().choose(uniforms)
    rotated = choice.magnitudes[choice.operations == NAMES.index("rotate")]
    sheared = choice.magnitudes[choice.operations == NAMES.index("shear_y")]
    assert (rotated > 0).all()
    assert 0.4 < (sheared > 0).double().mean() < 0.6
