"""Convolutional networks, their layers and gradients; images resized."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from user_programs.drawing import Draw, program

LAYOUTS = (("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"))


def _image(draw: Draw, layout: str, channels: int, dtype="float32", most: int = 20):
    batch, height, width = draw.size(1, 3), draw.size(3, most), draw.size(3, most)
    extents = {"N": batch, "C": channels, "H": height, "W": width}
    return draw.normal(*(extents[axis] for axis in layout), dtype=dtype)


def _filter(draw: Draw, layout: str, inputs: int, outputs: int, dtype="float32"):
    extents = {"I": inputs, "O": outputs, "H": draw.size(1, 3), "W": draw.size(1, 3)}
    return draw.normal(*(extents[axis] for axis in layout), dtype=dtype, scale=0.3)


def _convolution(draw: Draw, groups: int = 1):
    """A convolution's function with its operands; the result has at least one element."""
    numbers = draw.pick(LAYOUTS)
    dtype = draw.float_type()
    each, outputs = draw.size(1, 20 if groups == 1 else 3), draw.size(1, 20 if groups == 1 else 2)
    x = _image(draw, numbers[0], groups * each, dtype)
    w = _filter(draw, numbers[1], each, groups * outputs, dtype)
    strides = draw.size(1, 2), draw.size(1, 3)
    padding = draw.pick(("SAME", "VALID", [(1, 0), (0, 2)]))
    dilation = (1, 1) if draw.chance(0.6) else (2, 1)
    if padding == "VALID":
        dilation = (1, 1)

    def function(x, w):
        return jax.lax.conv_general_dilated(
            *(x, w, strides, padding),
            rhs_dilation=dilation,
            dimension_numbers=numbers,
            feature_group_count=groups,
        )

    return function, x, w


@program()
def convolution(draw: Draw):
    function, x, w = _convolution(draw)
    return function, (x, w)


@program()
def convolution_gradients(draw: Draw):
    function, x, w = _convolution(draw)
    return jax.grad(lambda x, w: jnp.sum(jnp.sin(function(x, w).astype(jnp.float32))), (0, 1)), (
        x,
        w,
    )


@program()
def depthwise_convolution(draw: Draw):
    function, x, w = _convolution(draw, draw.size(2, 24))
    return lambda x, w: jax.nn.relu6(function(x, w)), (x, w)


@program()
def depthwise_convolution_gradients(draw: Draw):
    function, x, w = _convolution(draw, draw.size(2, 12))
    return jax.grad(lambda x, w: jnp.sum(jnp.sin(function(x, w).astype(jnp.float32))), (0, 1)), (
        x,
        w,
    )


@program()
def transposed_convolution(draw: Draw):
    dtype = draw.float_type()
    inputs, outputs = draw.size(1, 12), draw.size(1, 12)
    x = _image(draw, "NHWC", inputs, dtype, 10)
    w = _filter(draw, "HWIO", inputs, outputs, dtype)
    strides, padding = (draw.size(1, 3), draw.size(1, 3)), draw.pick(("SAME", "VALID"))
    gradient = draw.chance(0.4)

    def function(x, w):
        return jax.lax.conv_transpose(x, w, strides, padding)

    if gradient:
        return jax.grad(lambda x, w: jnp.sum(jnp.sin(function(x, w).astype(jnp.float32))), 1), (
            x,
            w,
        )
    return function, (x, w)


@program()
def temporal_convolution(draw: Draw):
    """WaveNet: dilated causal layers of one dimension, gated."""
    batch, steps, width, layers = (draw.size(1, high) for high in (3, 40, 16, 3))
    taps = draw.size(1, 3)

    def function(x, weights):
        for layer in range(layers):
            left = (taps - 1) << layer
            y = jax.lax.conv_general_dilated(
                *(x, weights[layer], (1,), [(left, 0)]),
                rhs_dilation=(1 << layer,),
                dimension_numbers=("NWC", "WIO", "NWC"),
            )
            a, b = jnp.split(y, 2, axis=-1)
            x = x + jnp.tanh(a) * jax.nn.sigmoid(b)
        return x

    x = draw.normal(batch, steps, width)
    return function, (x, draw.normal(layers, taps, width, 2 * width, scale=0.3))


@program()
def volume_convolution(draw: Draw):
    inputs, outputs = draw.size(1, 6), draw.size(1, 6)
    x = draw.normal(draw.size(1, 2), *(draw.size(3, 7) for _ in range(3)), inputs)
    w = draw.normal(*(draw.size(1, 3) for _ in range(3)), inputs, outputs)
    numbers = ("NDHWC", "DHWIO", "NDHWC")
    stride = draw.size(1, 2)

    def function(x, w):
        y = jax.lax.conv_general_dilated(x, w, (stride,) * 3, "SAME", dimension_numbers=numbers)
        return jnp.mean(jax.nn.relu(y), axis=(1, 2, 3))

    return function, (x, w)


@program()
def patch_embedding(draw: Draw):
    size, grid, channels, width = (
        draw.size(2, 6),
        draw.size(1, 5),
        draw.size(1, 4),
        draw.size(1, 48),
    )
    dtype = draw.float_type()
    x = draw.normal(draw.size(1, 3), size * grid, size * grid, channels, dtype=dtype)

    def function(x, w, token, positions):
        y = jax.lax.conv_general_dilated(
            *(x, w, (size, size), "VALID"), dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        y = y.reshape(x.shape[0], -1, width)
        first = jnp.broadcast_to(token, (x.shape[0], 1, width))
        return jnp.concatenate([first, y], axis=1) + positions

    return function, (
        x,
        draw.normal(size, size, channels, width, dtype=dtype),
        draw.normal(width, dtype=dtype),
        draw.normal(grid * grid + 1, width, dtype=dtype),
    )


def _unet(weights, x):
    """Down by pooling, up by nearest neighbours, the skipped image joined."""

    def layer(x, w):
        y = jax.lax.conv_general_dilated(
            *(x, w, (1, 1), "SAME"), dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jax.nn.silu(y)

    a = layer(x, weights[0])
    b = jax.lax.reduce_window(a, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    b = layer(b, weights[1])
    up = jax.image.resize(b, (*a.shape[:3], b.shape[3]), "nearest")
    return layer(jnp.concatenate([a, up], -1), weights[2])


def _unet_operands(draw: Draw):
    channels, width, batch, side = (
        draw.size(1, 4),
        draw.size(2, 10),
        draw.size(1, 2),
        draw.size(2, 7),
    )
    weights = [
        draw.normal(3, 3, inputs, outputs, scale=0.3)
        for inputs, outputs in ((channels, width), (width, width), (2 * width, channels))
    ]
    return weights, draw.normal(batch, 2 * side, 2 * side, channels)


@program()
def unet(draw: Draw):
    return _unet, _unet_operands(draw)


@program()
def unet_gradients(draw: Draw):
    return jax.grad(lambda w, x: jnp.mean((_unet(w, x) - x) ** 2)), _unet_operands(draw)


@program()
def resized_images(draw: Draw):
    method = draw.pick(("nearest", "bilinear", "bicubic", "lanczos3"))
    dtype = draw.float_type()
    x = _image(draw, "NHWC", draw.size(1, 5), dtype)
    height, width = draw.size(1, 30), draw.size(1, 30)
    gradient = method != "nearest" and draw.chance(0.4)

    def function(x):
        return jax.image.resize(x, (x.shape[0], height, width, x.shape[3]), method)

    if gradient:
        return jax.grad(lambda x: jnp.sum(jnp.sin(function(x).astype(jnp.float32)))), (x,)
    return function, (x,)


def _pooling(draw: Draw):
    kind = draw.pick(("max", "average", "sum of squares"))
    window = (1, draw.size(1, 3), draw.size(1, 3), 1)
    strides = (1, draw.size(1, 3), draw.size(1, 3), 1)
    padding = draw.pick(("SAME", "VALID"))

    def function(x):
        if kind == "max":
            return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, padding)
        y = x * x if kind == "sum of squares" else x
        total = jax.lax.reduce_window(y, 0.0, jax.lax.add, window, strides, padding)
        if kind == "sum of squares":
            return jnp.sqrt(total)
        ones = jnp.ones_like(x)
        return total / jax.lax.reduce_window(ones, 0.0, jax.lax.add, window, strides, padding)

    return function, _image(draw, "NHWC", draw.size(1, 12))


@program()
def pooling(draw: Draw):
    function, x = _pooling(draw)
    return function, (x,)


@program()
def pooling_gradients(draw: Draw):
    function, x = _pooling(draw)
    return jax.grad(lambda x: jnp.sum(jnp.sin(function(x + 0.0)))), (x,)


@program()
def bilinear_sampling(draw: Draw):
    """Spatial transformers: four neighbours of each place, outside ones clipped."""
    height, width, channels, count = (draw.size(1, high) for high in (20, 20, 6, 60))

    def function(image, places):
        low = jnp.floor(places).astype(jnp.int32)
        part = places - low
        total = 0
        for dy in (0, 1):
            for dx in (0, 1):
                y = jnp.clip(low[:, 0] + dy, 0, height - 1)
                x = jnp.clip(low[:, 1] + dx, 0, width - 1)
                weight = jnp.abs(1 - dy - part[:, 0]) * jnp.abs(1 - dx - part[:, 1])
                total = total + weight[:, None] * image[y, x]
        return total

    places = draw.uniform(count, 2) * [height + 1, width + 1] - 1
    return function, (draw.normal(height, width, channels), places.astype("float32"))


@program()
def squeeze_and_excite(draw: Draw):
    dtype = draw.float_type()
    channels, inner = draw.size(1, 40), draw.size(1, 12)
    x = _image(draw, "NCHW", channels, dtype, 12)

    def function(x, w1, w2):
        means = x.mean((2, 3))
        scale = jax.nn.hard_sigmoid(jax.nn.relu(means @ w1) @ w2)
        return x * scale[:, :, None, None]

    return function, (
        x,
        draw.normal(channels, inner, dtype=dtype),
        draw.normal(inner, channels, dtype=dtype),
    )


@program()
def pixel_shuffle(draw: Draw):
    factor, height, width, channels = (draw.size(1, high) for high in (3, 9, 9, 6))
    dtype = draw.pick(("float32", "int8", "bfloat16", "uint8"))
    x = draw.whole(0, 100, 2, height, width, channels * factor * factor).astype(dtype)

    def function(x):
        y = x.reshape(2, height, width, factor, factor, channels)
        y = y.transpose(0, 1, 3, 2, 4, 5).reshape(2, height * factor, width * factor, channels)
        return y, jnp.flip(y, (1, 2)), jnp.pad(y, ((0, 0), (1, 2), (2, 1), (0, 0)), mode="reflect")

    if min(height, width) * factor < 4:
        return lambda x: x[:, ::-1, ::2], (x,)
    return function, (x,)


@program()
def discrete_cosine(draw: Draw):
    """Spectra of blocks by products."""
    size, rows, columns = draw.size(2, 16), draw.size(1, 5), draw.size(1, 5)

    def function(x):
        k, n = jnp.arange(size)[:, None], jnp.arange(size)[None]
        matrix = jnp.cos(jnp.pi * (2 * n + 1) * k / (2 * size)) * jnp.sqrt(2 / size)
        matrix = matrix * jnp.where(k == 0, jnp.sqrt(0.5), 1)
        blocks = x.reshape(rows, size, columns, size)
        spectrum = jnp.einsum("ka,iajb,lb->ikjl", matrix, blocks, matrix)
        return spectrum, jnp.einsum("ka,ikjl,lb->iajb", matrix, spectrum, matrix)

    return function, (draw.normal(rows * size, columns * size),)


@program()
def mel_spectrum(draw: Draw):
    """Frames of a signal by a gather, windowed, by products with cosines and sines."""
    frame, hop, frames = draw.size(2, 40), draw.size(1, 20), draw.size(1, 20)
    bands = draw.size(1, 12)

    def function(signal, filters):
        places = jnp.arange(frames)[:, None] * hop + jnp.arange(frame)[None]
        window = 0.5 - 0.5 * jnp.cos(2 * jnp.pi * jnp.arange(frame) / frame)
        parts = signal[places] * window
        angles = 2 * jnp.pi * jnp.outer(jnp.arange(frame), jnp.arange(frame // 2 + 1)) / frame
        power = (parts @ jnp.cos(angles)) ** 2 + (parts @ jnp.sin(angles)) ** 2
        return jnp.log(power @ filters + 1e-3)

    signal = draw.normal(frames * hop + frame)
    return function, (signal, draw.uniform(frame // 2 + 1, bands, low=0.1))
