"""The table of `detoklens verify`."""

from detoklens.tables.schema import HEAD, Column, Schema

VERIFICATION = Schema(
    "verification",
    "How far is the decomposition from the real model?",
    (
        Column("dtype", "String", "number type of both computations"),
        HEAD,
        Column("attention_difference", "Float64", "largest |difference| of an attention weight"),
        Column("output_difference", "Float64", "largest |difference| of what the head writes"),
        Column("layer_output_difference", "Float64", "largest |difference| of what all heads and the bias write"),
        Column("block_output_difference", "Float64", "of the whole first block; null where its MLP is not read"),
        Column("tolerance", "Float64", "what is still called equal"),
        Column(
            "passed", "Boolean", "each is within the tolerance; those of outputs first over max(1, largest |value|)"
        ),
    ),
)
