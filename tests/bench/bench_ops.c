/*
 * Operators at the shapes of training, next to what the machine can do:
 *
 *     bench_ops [DEVICE [THREADS [SECONDS [NAME]]]]      default: cpu 0 0.3, every op
 *
 * One line per shape: median and fastest time, GFLOP/s and share of the matrix product's peak, GB/s
 * and share of a plain copy's (every operand counted once). Both yardsticks are measured first, in
 * the same run. NAME picks the ops whose name begins with it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "kernels/rows/op_rows.h"

enum { MAX_RUNS = 200, MIN_RUNS = 3 };

static const struct {
    const char *row, *what;
    struct op_size size;
    unsigned flags;
} shapes[] = {
    {"normalize_u8", "64 px", {{128, 64, 64}}, 0},
    {"conv_bn", "stem 3x3, 3 -> 32, 64 px", {{128, 64, 64, 3, 32, 3, 2, 1}}, OP_PLAIN | OP_ACT},
    {"conv_bn", "stem 3x3, 32 -> 64, 32 px", {{128, 32, 32, 32, 64, 3, 1, 1}}, OP_PLAIN | OP_ACT},
    {"conv_bn", "stem 7x7, 3 -> 64, 64 px", {{128, 64, 64, 3, 64, 7, 2, 3}}, OP_PLAIN | OP_ACT},
    {"conv_bn", "3x3, 64, 16 px, residual", {{128, 16, 16, 64, 64, 3, 1, 1}}, OP_ACT},
    {"conv_bn", "1x1, 64 -> 256, 16 px, residual", {{128, 16, 16, 64, 256, 1, 1, 0}}, OP_ACT},
    {"conv_bn", "1x1, 256 -> 64, 16 px", {{128, 16, 16, 256, 64, 1, 1, 0}}, OP_PLAIN | OP_ACT},
    {"conv_bn", "3x3, 128 -> 128, stride 2, 16 px", {{128, 16, 16, 128, 128, 3, 2, 1}}, OP_ACT},
    {"conv_bn", "3x3, 256, 4 px", {{128, 4, 4, 256, 256, 3, 1, 1}}, OP_PLAIN | OP_ACT},
    {"conv_bn", "3x3, 512, 3 px", {{128, 3, 3, 512, 512, 3, 1, 1}}, OP_PLAIN | OP_ACT},
    {"conv_bn", "1x1, 1024 -> 256, 4 px", {{128, 4, 4, 1024, 256, 1, 1, 0}}, OP_PLAIN | OP_ACT},
    {"conv_bn", "1x1, 512 -> 2048, 2 px", {{128, 2, 2, 512, 2048, 1, 1, 0}}, OP_PLAIN | OP_ACT},
    {"conv_bn", "3x3, 512, 2 px", {{128, 2, 2, 512, 512, 3, 1, 1}}, OP_PLAIN | OP_ACT},
    {"conv_bn_bwd",
     "stem 3x3, 3 -> 32, 64 px",
     {{128, 64, 64, 3, 32, 3, 2, 1}},
     OP_PLAIN | OP_UNWANTED | OP_ACT},
    {"conv_bn_bwd",
     "stem 7x7, 3 -> 64, 64 px",
     {{128, 64, 64, 3, 64, 7, 2, 3}},
     OP_PLAIN | OP_UNWANTED | OP_ACT},
    {"conv_bn_bwd", "3x3, 64, 16 px, residual", {{128, 16, 16, 64, 64, 3, 1, 1}}, OP_ACT},
    {"conv_bn_bwd", "the same, added", {{128, 16, 16, 64, 64, 3, 1, 1}}, OP_ACT | OP_ADD},
    {"conv_bn_bwd", "1x1, 64 -> 256, 16 px, residual", {{128, 16, 16, 64, 256, 1, 1, 0}}, OP_ACT},
    {"conv_bn_bwd", "1x1, 256 -> 64, 16 px", {{128, 16, 16, 256, 64, 1, 1, 0}}, OP_PLAIN | OP_ACT},
    {"conv_bn_bwd", "3x3, 256, 4 px", {{128, 4, 4, 256, 256, 3, 1, 1}}, OP_PLAIN | OP_ACT},
    {"conv_bn_bwd", "3x3, 512, 3 px", {{128, 3, 3, 512, 512, 3, 1, 1}}, OP_PLAIN | OP_ACT},
    {"conv_bn_bwd", "1x1, 1024 -> 256, 4 px", {{128, 4, 4, 1024, 256, 1, 1, 0}}, OP_PLAIN | OP_ACT},
    {"conv_bn_bwd", "1x1, 512 -> 2048, 2 px", {{128, 2, 2, 512, 2048, 1, 1, 0}}, OP_PLAIN | OP_ACT},
    {"conv_bn_bwd", "3x3, 512, 2 px", {{128, 2, 2, 512, 512, 3, 1, 1}}, OP_PLAIN | OP_ACT},
    {"maxpool", "3x3, 64, 32 px", {{128, 32, 32, 64, 3, 2, 1}}, 0},
    {"maxpool_bwd", "3x3, 64, 32 px", {{128, 32, 32, 64, 3, 2, 1}}, 0},
    {"avgpool", "2x2, 256, 16 px", {{128, 16, 16, 256, 2, 2, 0}}, 0},
    {"avgpool_bwd", "2x2, 256, 16 px", {{128, 16, 16, 256, 2, 2, 0}}, OP_ADD},
    {"global_avgpool", "512, 4 px", {{128, 4, 4, 512}}, 0},
    {"global_avgpool_bwd", "512, 4 px", {{128, 4, 4, 512}}, 0},
    {"linear", "192 -> 576", {{2048, 192, 576}}, 0},
    {"linear", "192 -> 768, gelu", {{2048, 192, 768}}, OP_ACT},
    {"linear", "768 -> 192", {{2048, 768, 192}}, 0},
    {"linear_bwd", "192 -> 576", {{2048, 192, 576}}, OP_ADD},
    {"linear_bwd", "192 -> 768, gelu", {{2048, 192, 768}}, OP_ACT | OP_ADD},
    {"matmul", "similarities, 128 x 256", {{128, 128, 256}}, OP_TRANSPOSE_B},
    {"embedding", "192, T 16", {{128, 16, 192, 8192, 64}}, 0},
    {"embedding_bwd", "192, T 16, added", {{128, 16, 192, 8192, 64}}, OP_ADD},
    {"layernorm", "192", {{2048, 192}}, 0},
    {"layernorm_bwd", "192", {{2048, 192}}, OP_ADD},
    {"attention", "3 heads of 64, T 16", {{128, 16, 3, 64}}, 0},
    {"attention", "the same, dropout", {{128, 16, 3, 64}}, OP_DROP},
    {"attention_bwd", "3 heads of 64, T 16", {{128, 16, 3, 64}}, 0},
    {"attention_bwd", "the same, dropout", {{128, 16, 3, 64}}, OP_DROP},
    {"dropout", "192, T 16", {{128, 16, 192}}, 0},
    {"gather_rows", "128 of 2048, 192", {{128, 2048, 192}}, 0},
    {"scatter_rows", "128 of 2048, 192", {{128, 2048, 192}}, 0},
    {"l2_normalize", "256", {{128, 256}}, 0},
    {"l2_normalize_bwd", "256", {{128, 256}}, 0},
    {"fill", "8 M", {{8000000}}, 0},
    {"add", "8 M", {{8000000}}, 0},
    {"sum_squares", "8 M", {{8000000}}, 0},
    {"adamw", "8 M", {{8000000, 10}}, 0},
};

struct result {
    double median_s, fastest_s;
    double flops, bytes; /* of one call */
};

static void die(const struct error *err) {
    fprintf(stderr, "bench_ops: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static int by_size(const void *a, const void *b) {
    const double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static struct result measure(struct device *dev,
                             const char *row,
                             const struct op_size *size,
                             unsigned flags,
                             double seconds) {
    static struct op_case c;
    static double times[MAX_RUNS];
    struct op_data d;
    struct error err = {0};
    op_describe(&c, op_row_find(row), size, flags, DTYPE_F32);
    if (op_data_create(&d, &c, 0, &err) != STATUS_OK ||
        op_data_fill(&d, &c, 1, dev, &err) != STATUS_OK || op_run(dev, &c, &d, &err) != STATUS_OK) {
        die(&err);
    }
    int runs = 0;
    const int64_t begin = clock_now_ns();
    while (runs < MAX_RUNS &&
           (runs < MIN_RUNS || (double)(clock_now_ns() - begin) * 1e-9 < seconds)) {
        const int64_t start = clock_now_ns();
        if (op_run(dev, &c, &d, &err) != STATUS_OK || dev->ops->sync(dev, &err) != STATUS_OK) {
            die(&err);
        }
        times[runs++] = (double)(clock_now_ns() - start) * 1e-9;
    }
    op_data_destroy(&d);
    qsort(times, (size_t)runs, sizeof times[0], by_size);
    return (struct result){times[runs / 2], times[0], c.flops, op_case_bytes(&c)};
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "cpu";
    const int threads = argc > 2 ? atoi(argv[2]) : 0;
    const double seconds = argc > 3 ? atof(argv[3]) : 0.3;
    const char *only = argc > 4 ? argv[4] : "";
    struct device *dev;
    struct error err = {0};
    if (device_open(&dev, name, threads, &err) != STATUS_OK) {
        die(&err);
    }
    const struct op_size square = {{1536, 1536, 1536}};
    const struct op_size long_vector = {{16000000}};
    const struct result product = measure(dev, "matmul", &square, 0, 2 * seconds);
    const struct result sum = measure(dev, "add", &long_vector, 0, 2 * seconds);
    const double peak = product.flops / product.fastest_s;
    const double stream = sum.bytes / sum.fastest_s;
    printf("device %s: matrix product of 1536: %.1f GFLOP/s; sum of two long vectors: %.1f GB/s\n",
           name, peak * 1e-9, stream * 1e-9);
    printf("%-20s %-34s %9s %9s %9s %5s %8s %5s\n", "op", "shape", "median ms", "best ms",
           "GFLOP/s", "%", "GB/s", "%");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        if (strncmp(shapes[i].row, only, strlen(only)) != 0) {
            continue;
        }
        const struct result r =
            measure(dev, shapes[i].row, &shapes[i].size, shapes[i].flags, seconds);
        const double speed = r.flops / r.median_s;
        const double flow = r.bytes / r.median_s;
        printf("%-20s %-34s %9.3f %9.3f %9.1f %5.1f %8.2f %5.1f\n", shapes[i].row, shapes[i].what,
               r.median_s * 1e3, r.fastest_s * 1e3, speed * 1e-9, 100 * speed / peak, flow * 1e-9,
               100 * flow / stream);
    }
    device_close(dev);
    return EXIT_SUCCESS;
}
