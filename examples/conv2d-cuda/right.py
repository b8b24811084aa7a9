"""The right answer, in double precision."""
import numpy


def conv2d(image, weights):
    height, width = image.shape[0] - weights.shape[0] + 1, image.shape[1] - weights.shape[1] + 1
    image, out = image.astype(numpy.float64), numpy.zeros((height, width))
    for (j, i), weight in numpy.ndenumerate(weights.astype(numpy.float64)):
        out += weight * image[j : j + height, i : i + width]
    return out
