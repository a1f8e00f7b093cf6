#!/usr/bin/env python3
"""Makes digits-{train,validation}-{images,labels}.idx beside this file.

Needs scikit-learn (Debian: python3-sklearn), whose load_digits() holds the 1,797 digits. README.md says where
they come from. The split is a shuffle with a fixed seed: the set is in the order of its collection, so its last
part alone is not like the rest.
"""
import pathlib
import struct

import numpy
from sklearn.datasets import load_digits

SEED = 1
VALIDATION = 360
U8 = 0x08


def save(path, array):
    header = struct.pack(">BBBB", 0, 0, U8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(header + array.astype(numpy.uint8).tobytes())


def main():
    digits = load_digits()
    images = numpy.rint(digits.images * 255 / 16)  # 0..16 becomes 0..255
    order = numpy.random.RandomState(SEED).permutation(len(images))
    here = pathlib.Path(__file__).parent
    for split, ids in (("train", order[VALIDATION:]), ("validation", order[:VALIDATION])):
        save(here / f"digits-{split}-images.idx", images[ids])
        save(here / f"digits-{split}-labels.idx", digits.target[ids])


main()
