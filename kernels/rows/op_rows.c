/*
 * op_rows: the table. Sizes hold edge cases: one, odd numbers, and numbers beside the vector
 * widths.
 */
#include "kernels/rows/rows_internal.h"

/* ---- the table ---- */

#define ROW(op)                                                                                    \
    .name = #op, .member = offsetof(struct ops, op), .describe = describe_##op, .call = call_##op
#define SIZES(n, ...)    .sizes_count = (n), .sizes = {__VA_ARGS__}
#define VARIANTS(n, ...) .variants_count = (n), .variants = {__VA_ARGS__}

#define CONV_SIZES                                                                                 \
    SIZES(12, {{2, 4, 5, 65, 9, 1, 1, 0}}, {{2, 2, 2, 64, 17, 3, 1, 1}},                           \
          {{1, 5, 3, 67, 8, 3, 2, 1}}, {{1, 1, 1, 1, 1, 1, 1, 0}}, {{2, 1, 1, 3, 5, 1, 1, 0}},     \
          {{2, 5, 7, 3, 17, 3, 2, 1}}, {{1, 8, 8, 16, 16, 3, 1, 1}}, {{3, 7, 5, 9, 33, 3, 1, 1}},  \
          {{2, 6, 9, 17, 8, 1, 2, 0}}, {{1, 9, 9, 3, 8, 7, 2, 3}}, {{2, 3, 2, 7, 1, 3, 3, 2}},     \
          {{3, 1, 4, 1, 31, 1, 1, 1}})
#define MAXPOOL_SIZES                                                                              \
    SIZES(6, {{1, 1, 1, 1, 1, 1, 0}}, {{2, 7, 5, 3, 3, 2, 1}}, {{1, 8, 8, 16, 3, 2, 1}},           \
          {{3, 4, 6, 17, 2, 2, 0}}, {{2, 5, 5, 9, 3, 1, 1}}, {{1, 9, 4, 33, 2, 3, 0}})
#define AVGPOOL_SIZES                                                                              \
    SIZES(6, {{1, 1, 1, 1, 2, 2, 0}}, {{2, 7, 5, 3, 2, 2, 0}}, {{1, 8, 8, 16, 2, 2, 0}},           \
          {{3, 5, 6, 17, 3, 2, 1}}, {{2, 5, 5, 9, 3, 1, 1}}, {{1, 9, 4, 33, 2, 3, 1}})
#define PLANE_SIZES SIZES(4, {{1, 1, 1, 1}}, {{2, 3, 5, 7}}, {{3, 2, 2, 33}}, {{5, 4, 4, 16}})
#define PRODUCT_SIZES                                                                              \
    SIZES(6, {{1, 1, 1}}, {{1, 7, 3}}, {{17, 1, 33}}, {{33, 17, 1}}, {{16, 8, 32}}, {{19, 31, 23}})
#define EMBEDDING_SIZES                                                                            \
    SIZES(4, {{1, 1, 1, 1, 1}}, {{3, 5, 7, 4, 6}}, {{2, 9, 33, 11, 9}}, {{4, 8, 16, 3, 8}})
#define LAYERNORM_SIZES SIZES(5, {{1, 2}}, {{1, 33}}, {{7, 5}}, {{19, 16}}, {{35, 31}})
#define ATTENTION_SIZES                                                                            \
    SIZES(7, {{1, 1, 1, 1}}, {{2, 3, 1, 5}}, {{3, 7, 3, 4}}, {{2, 16, 2, 16}}, {{1, 17, 1, 33}},   \
          {{5, 2, 4, 1}}, {{1, 70, 2, 3}})
#define DROPOUT_SIZES SIZES(5, {{1, 1, 1}}, {{3, 1, 7}}, {{2, 5, 9}}, {{4, 8, 16}}, {{2, 31, 37}})
#define L2_SIZES      SIZES(5, {{1, 1}}, {{1, 2}}, {{3, 7}}, {{5, 33}}, {{16, 16}})
#define FLAT_SIZES    SIZES(5, {{1, 1}}, {{7, 2}}, {{16, 10}}, {{1001, 1000}}, {{40007, 3}})

const struct op_row op_rows[] = {
    {ROW(fill), .tolerance_f32 = 0, .tolerance_bf16 = 0, .any_shape = true, FLAT_SIZES,
     VARIANTS(1, 0)},
    {ROW(cast), .tolerance_f32 = 0, .tolerance_bf16 = 0, FLAT_SIZES, VARIANTS(2, 0, OP_ALT)},
    {ROW(normalize_u8), .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3, PLANE_SIZES, VARIANTS(1, 0)},
    {ROW(conv_bn), .tolerance_f32 = 1e-5, .tolerance_bf16 = 4e-3, CONV_SIZES,
     VARIANTS(7,
              0,
              OP_ACT,
              OP_PLAIN,
              OP_PLAIN | OP_ACT,
              OP_EVAL | OP_ACT,
              OP_EVAL | OP_PLAIN,
              OP_UNWANTED | OP_ACT)},
    {ROW(conv_bn_bwd), .forward = "conv_bn", .tolerance_f32 = 2e-5, .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6, CONV_SIZES,
     VARIANTS(8,
              0,
              OP_ACT,
              OP_ACT | OP_ADD,
              OP_PLAIN | OP_ACT,
              OP_PLAIN | OP_ADD,
              OP_ALIAS | OP_ACT,
              OP_UNWANTED | OP_ACT,
              OP_UNWANTED | OP_ACT | OP_ADD)},
    {ROW(maxpool), .tolerance_f32 = 0, .tolerance_bf16 = 0, MAXPOOL_SIZES, VARIANTS(1, 0)},
    {ROW(maxpool_bwd), .forward = "maxpool", .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6, MAXPOOL_SIZES, VARIANTS(2, 0, OP_ADD)},
    {ROW(avgpool), .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3, AVGPOOL_SIZES, VARIANTS(1, 0)},
    {ROW(avgpool_bwd), .forward = "avgpool", .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6, AVGPOOL_SIZES, VARIANTS(2, 0, OP_ADD)},
    {ROW(global_avgpool), .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3, PLANE_SIZES,
     VARIANTS(1, 0)},
    {ROW(global_avgpool_bwd), .forward = "global_avgpool", .tolerance_f32 = 1e-6,
     .tolerance_bf16 = 4e-3, .tolerance_f64 = 1e-6, PLANE_SIZES, VARIANTS(2, 0, OP_ADD)},
    {ROW(linear), .tolerance_f32 = 2e-6, .tolerance_bf16 = 4e-3, PRODUCT_SIZES,
     VARIANTS(4, 0, OP_PLAIN, OP_ACT, OP_ACT | OP_PLAIN)},
    {ROW(linear_bwd), .forward = "linear", .tolerance_f32 = 2e-6, .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6, PRODUCT_SIZES,
     VARIANTS(8,
              0,
              OP_ADD,
              OP_PLAIN,
              OP_ACT,
              OP_ACT | OP_ADD,
              OP_ACT | OP_PLAIN | OP_ADD,
              OP_UNWANTED,
              OP_UNWANTED | OP_ACT | OP_ADD)},
    {ROW(matmul), .tolerance_f32 = 2e-6, .tolerance_bf16 = 4e-3, PRODUCT_SIZES,
     VARIANTS(6,
              0,
              OP_ADD,
              OP_TRANSPOSE_A,
              OP_TRANSPOSE_B | OP_ADD,
              OP_TRANSPOSE_A | OP_TRANSPOSE_B,
              OP_ALT | OP_TRANSPOSE_B)},
    {ROW(embedding), .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3, EMBEDDING_SIZES,
     VARIANTS(2, 0, OP_PACKED)},
    {ROW(embedding_bwd), .forward = "embedding", .tolerance_f32 = 2e-6, .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6, EMBEDDING_SIZES, VARIANTS(3, 0, OP_ADD, OP_PACKED)},
    {ROW(layernorm), .tolerance_f32 = 5e-6, .tolerance_bf16 = 4e-3, LAYERNORM_SIZES,
     VARIANTS(4, 0, OP_PLAIN, OP_ALIAS, OP_ALIAS | OP_PLAIN)},
    {ROW(layernorm_bwd), .forward = "layernorm", .tolerance_f32 = 5e-6, .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6, LAYERNORM_SIZES, VARIANTS(3, 0, OP_ADD, OP_PLAIN)},
    {ROW(attention), .tolerance_f32 = 5e-6, .tolerance_bf16 = 4e-3, ATTENTION_SIZES,
     VARIANTS(3, 0, OP_DROP, OP_DROP | OP_PACKED)},
    {ROW(attention_bwd), .forward = "attention", .tolerance_f32 = 5e-6, .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6, ATTENTION_SIZES, VARIANTS(3, 0, OP_DROP, OP_DROP | OP_PACKED)},
    {ROW(dropout), .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3, DROPOUT_SIZES,
     VARIANTS(3, 0, OP_ALIAS, OP_PACKED)},
    {.name = "dropout (gradient)",
     .member = offsetof(struct ops, dropout),
     .forward = "dropout",
     .describe = describe_dropout_gradient,
     .call = call_dropout,
     .tolerance_f32 = 1e-6,
     .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6,
     DROPOUT_SIZES,
     VARIANTS(2, 0, OP_PACKED)},
    {ROW(segment_mean), .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3, DROPOUT_SIZES,
     VARIANTS(2, 0, OP_PACKED)},
    {ROW(segment_mean_bwd), .forward = "segment_mean", .tolerance_f32 = 1e-6,
     .tolerance_bf16 = 4e-3, .tolerance_f64 = 1e-6, DROPOUT_SIZES,
     VARIANTS(3, 0, OP_ADD, OP_PACKED)},
    {ROW(gather_rows), .tolerance_f32 = 0, .tolerance_bf16 = 0,
     SIZES(4, {{1, 1, 1}}, {{5, 3, 7}}, {{9, 31, 33}}, {{16, 16, 16}}), VARIANTS(1, 0)},
    {ROW(scatter_rows), .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3,
     SIZES(4, {{1, 1, 1}}, {{3, 5, 7}}, {{9, 31, 33}}, {{16, 16, 16}}), VARIANTS(2, 0, OP_ADD)},
    {ROW(l2_normalize), .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3, L2_SIZES, VARIANTS(1, 0)},
    {ROW(l2_normalize_bwd), .forward = "l2_normalize", .tolerance_f32 = 2e-6,
     .tolerance_bf16 = 4e-3, .tolerance_f64 = 1e-6, L2_SIZES, VARIANTS(1, 0)},
    {ROW(add), .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3, FLAT_SIZES, VARIANTS(1, 0)},
    {ROW(sum_squares), .tolerance_f32 = 1e-12, .tolerance_bf16 = 1e-12, .any_shape = true,
     FLAT_SIZES, VARIANTS(1, 0)},
    {ROW(grad_scale), .tolerance_f32 = 1e-12, .tolerance_bf16 = 1e-12,
     SIZES(4, {{1, 0}}, {{2, 0}}, {{2, 1}}, {{1, 100000}}), VARIANTS(1, 0)},
    {ROW(adamw), .tolerance_f32 = 2e-6, .tolerance_bf16 = 1e-4, FLAT_SIZES,
     VARIANTS(2, 0, OP_UNWANTED)},
    {ROW(sgdm), .tolerance_f32 = 2e-6, .tolerance_bf16 = 1e-4, FLAT_SIZES,
     VARIANTS(3, 0, OP_UNWANTED, OP_ALT)},
};
const int op_rows_count = (int)(sizeof op_rows / sizeof op_rows[0]);
