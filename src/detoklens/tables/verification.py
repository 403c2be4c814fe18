"""The table of `detoklens verify`."""

from detoklens.tables.schema import HEAD, Column, Schema

VERIFICATION = Schema(
    "verification",
    "Difference between the decomposition and the real model",
    (
        Column("dtype", "String", "data type of both computations"),
        HEAD,
        Column("attention_difference", "Float64", "largest |difference| of an attention weight"),
        Column("output_difference", "Float64", "largest |difference| of the head's output"),
        Column(
            "layer_output_difference", "Float64", "largest |difference| of the attention layer's output, with its bias"
        ),
        Column(
            "block_output_difference",
            "Float64",
            "largest |difference| of the first block's output; null if its MLP is not read",
        ),
        Column("tolerance", "Float64", "largest accepted difference"),
        Column(
            "passed",
            "Boolean",
            "whether each difference is within the tolerance, for outputs relative to max(1, largest |value|)",
        ),
    ),
)
