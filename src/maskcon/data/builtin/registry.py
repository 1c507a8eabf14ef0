"""The datasets known by name."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

from maskcon._utils.errors import MaskconError, unknown
from maskcon._utils.paths import data_root
from maskcon.data.builtin import cars196, cifar, fashion_mnist, imagenet32, sop
from maskcon.data.dataset import Grouping, Variant
from maskcon.data.source import ArraySource, Description, PictureSource, Source, SourceInfo, WantedFile

CIFAR_CITATION = "A. Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009"
MASKCON_CITATION = (
    "C. Feng and I. Patras: MaskCon: Masked Contrastive Learning for Coarse-Labelled Dataset, CVPR 2023"
)
SOP_CITATION = (
    "H. Oh Song, Y. Xiang, S. Jegelka and S. Savarese: Deep Metric Learning via Lifted Structured Feature "
    "Embedding, CVPR 2016"
)
CARS_PAGE = "https://www.kaggle.com/datasets/cyizhuo/stanford-cars-by-classes-folder"

FASHION_INFO = SourceInfo(
    name="fashion-mnist",
    title="Fashion-MNIST",
    summary="all items of Fashion-MNIST in four coarse groups",
    classes=(4, 10),
    counts=(60_000, 10_000),
    image="32x32 grey",
    licence="MIT (Zalando SE)",
    origin_url="https://github.com/zalandoresearch/fashion-mnist",
    how_to_get="--download (31 MB), or Debian's package dataset-fashion-mnist",
    family="embedded",
    class_order="the set's labels",
    citation="H. Xiao, K. Rasul and R. Vollgraf: Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine "
    "Learning Algorithms, arXiv:1708.07747, 2017",
    files=tuple(
        WantedFile(f"{fashion_mnist.FOLDER}/{name}", (md5,)) for name, md5 in fashion_mnist.MD5.items()
    ),
    download_mb=31,
)
CIFAR10_INFO = SourceInfo(
    name="cifar10",
    title="CIFAR-10",
    summary="all 10 classes, as animals and vehicles",
    classes=(2, 10),
    counts=(50_000, 10_000),
    image="32x32 colour",
    licence="none stated; for research, cite Krizhevsky (2009)",
    origin_url="https://cave.cs.toronto.edu/kriz/cifar.html",
    how_to_get=f"--download (170 MB), or put {cifar.CIFAR10.archive} into the data folder",
    family="cifar",
    class_order="the set's labels",
    citation=CIFAR_CITATION,
    files=(WantedFile(cifar.CIFAR10.archive, (cifar.CIFAR10.md5,)),),
    download_mb=170,
)


def _cars(root: Path, variant: Variant) -> Grouping:  # noqa: ARG001
    return Grouping(cars196.COARSE_NAMES, cars196.FINE_NAMES, cars196.coarse_of(variant))


def _products(split: sop.SplitName, root: Path, variant: Variant) -> Grouping | str:
    """Which products a split has is in the set's own lists only."""
    if not sop.is_unpacked(root):
        return (
            "the products are listed in Ebay_info.txt; known once the dataset is complete and unpacked here"
        )
    try:
        return sop.sop_listing(split, root, variant=variant).grouping
    except MaskconError as error:
        return str(error)


def _toy(split: cifar.SplitName, summary: str) -> Source:
    return ArraySource(
        replace(
            CIFAR10_INFO,
            name=f"cifartoy-{split}",
            title=f"CIFARtoy, {split} split",
            summary=summary,
            classes=(2, 8),
            counts=(40_000, 8_000),
            class_order="CIFAR-10's labels without deer and frog, renumbered",
            citation=f"{CIFAR_CITATION}; {MASKCON_CITATION}",
        ),
        missing=partial(cifar.missing, cifar.CIFAR10),
        coarse_names=cifar.toy_grouping(split).coarse_names,
        grouping=lambda _, variant: cifar.toy_grouping(split, variant),
        load=partial(cifar.load_toy, split),
    )


def _sop(split: sop.SplitName, summary: str, fine: int) -> Source:
    return PictureSource(
        SourceInfo(
            name=f"sop-{split}",
            title=f"Stanford Online Products, {split}",
            summary=summary,
            classes=(12, fine),
            counts=sop.PAPER_COUNTS[split],
            image="photographs",
            licence="none stated; for research, cite Oh Song et al. (2016)",
            origin_url=sop.PAGE,
            how_to_get=f"--download (3.1 GB), or put {sop.ARCHIVE} into the data folder",
            family="products",
            class_order="products of the split by their class_id",
            citation=f"{SOP_CITATION}; {MASKCON_CITATION}",
            files=(WantedFile(sop.ARCHIVE, (sop.MD5,)),),
            download_mb=3_100,
        ),
        missing=sop.missing,
        coarse_names=sop.COARSE_NAMES,
        grouping=partial(_products, split),
        listing=partial(sop.sop_listing, split),
    )


_ALL: tuple[Source, ...] = (
    ArraySource(
        replace(
            FASHION_INFO,
            name="embedded",
            title="Clothes (part of the package)",
            summary="8,000 Fashion-MNIST items turned, scaled and shifted on backgrounds of their own",
            counts=(6_000, 2_000),
            how_to_get="comes with maskcon",
            class_order="Fashion-MNIST's labels",
            files=(),
            download_mb=None,
        ),
        missing=lambda _: (),
        coarse_names=fashion_mnist.CLASSES.coarse_names,
        grouping=lambda *_: fashion_mnist.CLASSES,
        load=lambda *_, **__: fashion_mnist.load_embedded(),
    ),
    ArraySource(
        FASHION_INFO,
        missing=fashion_mnist.missing,
        coarse_names=fashion_mnist.CLASSES.coarse_names,
        grouping=lambda *_: fashion_mnist.CLASSES,
        load=fashion_mnist.load_fashion_mnist,
    ),
    _toy("good", "the paper's toy set: 8 classes of CIFAR-10 as vehicles and animals"),
    _toy("bad", "the same 8 classes in two mixed groups (which differ by variant: paper or reference)"),
    ArraySource(
        CIFAR10_INFO,
        missing=partial(cifar.missing, cifar.CIFAR10),
        coarse_names=cifar.cifar10_grouping().coarse_names,
        grouping=lambda *_: cifar.cifar10_grouping(),
        load=partial(cifar.load_cifar, "cifar10"),
    ),
    ArraySource(
        replace(
            CIFAR10_INFO,
            name="cifar100",
            title="CIFAR-100",
            summary="100 classes in the 20 coarse ones of the set itself, as in the paper",
            classes=(20, 100),
            how_to_get=f"--download (169 MB), or put {cifar.CIFAR100.archive} into the data folder",
            class_order="the set's fine labels",
            files=(WantedFile(cifar.CIFAR100.archive, (cifar.CIFAR100.md5,)),),
            download_mb=169,
        ),
        missing=partial(cifar.missing, cifar.CIFAR100),
        coarse_names=cifar.cifar100_grouping().coarse_names,
        grouping=lambda *_: cifar.cifar100_grouping(),
        load=partial(cifar.load_cifar, "cifar100"),
    ),
    ArraySource(
        SourceInfo(
            name="imagenet32",
            title="ImageNet-1K at 32x32",
            summary="1,000 classes in the paper's 12 coarse ones, after WordNet; the validation images test",
            classes=(12, 1000),
            counts=(imagenet32.OFFICIAL_TRAIN_COUNT, imagenet32.OFFICIAL_TEST_COUNT),
            image="32x32 colour",
            licence="ImageNet's terms of access: research and education only, not commercial",
            origin_url=imagenet32.PAGE,
            how_to_get=f"by hand (4 GB, free account): put {imagenet32.TRAIN.archive} and "
            f"{imagenet32.TEST.archive} into the data folder",
            family="cifar",
            class_order="sorted WNIDs (not the labels in the files)",
            citation="P. Chrabaszcz, I. Loshchilov and F. Hutter: A Downsampled Variant of ImageNet as an "
            "Alternative to the CIFAR datasets, arXiv:1707.08819, 2017; O. Russakovsky et al.: ImageNet Large "
            f"Scale Visual Recognition Challenge, IJCV 2015; {MASKCON_CITATION}",
            files=tuple(
                WantedFile(name, tuple(release[name] for release in imagenet32.KNOWN_MD5))
                for name in (*imagenet32.TRAIN_FILES, imagenet32.TEST_FILE)
            ),
        ),
        missing=imagenet32.missing,
        coarse_names=imagenet32.GROUPING.coarse_names,
        grouping=lambda *_: imagenet32.GROUPING,
        load=imagenet32.load_imagenet32,
        converted=True,
    ),
    _sop(
        "split1", "products of 8 or more photographs in 12 categories; train and test share no product", 5_035
    ),
    _sop("split2", "products of 12 photographs in 12 categories: 10 of each to train on, 2 to test", 1_498),
    PictureSource(
        SourceInfo(
            name="cars196",
            title="Stanford Cars",
            summary="196 car models in 8 body types (7 wagons and 12 vans; variant reference: 6 and 13)",
            classes=(8, 196),
            counts=cars196.OFFICIAL_COUNTS,
            image="photographs",
            licence="none stated; for research, cite Krause et al. (2013)",
            origin_url=CARS_PAGE,
            how_to_get="by hand (2 GB): put train/ and test/ of a copy, or the original files, into cars196/ in "
            "the data folder",
            family="cars",
            class_order="the set's class numbers, 1 to 196",
            citation="J. Krause, M. Stark, J. Deng and L. Fei-Fei: 3D Object Representations for Fine-Grained "
            f"Categorization, 3dRR workshop at ICCV 2013; {MASKCON_CITATION}",
            files=(WantedFile("cars196/train/<model>/"), WantedFile("cars196/test/<model>/")),
        ),
        missing=cars196.missing,
        coarse_names=cars196.COARSE_NAMES,
        grouping=_cars,
        listing=cars196.cars_listing,
    ),
)
SOURCES: dict[str, Source] = {source.info.name: source for source in _ALL}


def catalogue(root: Path | None = None) -> list[SourceInfo]:
    """What can be given to `load` by name.

    >>> [info.name for info in catalogue() if info.name == "embedded" and info.available]
    ['embedded']
    """
    folder = data_root(root)
    return [replace(source.info, available=not source.missing(folder)) for source in SOURCES.values()]


def describe(name: str, root: Path | None = None, *, variant: Variant = "paper") -> Description:
    """The dataset of this name, with its classes; loads no image.

    >>> describe("cifartoy-good").grouping.coarse_of
    (0, 0, 1, 1, 1, 1, 0, 0)
    """
    source = SOURCES.get(name)
    if source is None:
        raise unknown("dataset", name, SOURCES)
    if variant not in get_args(Variant):
        raise unknown("variant", variant, get_args(Variant))
    folder = data_root(root)
    missing = source.missing(folder)
    found = source.grouping(folder, variant)
    return Description(
        info=replace(source.info, available=not missing),
        variant=variant,
        folder=folder,
        missing=missing,
        coarse_names=source.coarse_names,
        grouping=None if isinstance(found, str) else found,
        why_no_grouping=found if isinstance(found, str) else None,
    )
