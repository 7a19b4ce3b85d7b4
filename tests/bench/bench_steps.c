/*
 * The single steps of augmentation on one thread, beside a plain copy:
 *
 *     bench_steps [SIZE_PX [SECONDS [--json]]]      default: 256 0.2
 *
 * Each step on an image of SIZE_PX x SIZE_PX, with every set of inner loops that this CPU has:
 * megapixels per second and microseconds per image, fastest of the rounds, the median of them
 * beside it, and the share of what memcpy moves. Resizes begin at 500 x 375. Times are those of the
 * thread, so that other work on the machine counts little. --json: one object per line instead.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "augment/ops_internal.h"
#include "augment/resize_internal.h"
#include "formats/base/clock.h"
#include "formats/base/rng.h"
#include "tests/support/loop_sets.h"

enum { MAX_SIZE_PX = 4096, MAX_ROUNDS = 4000, ROUND_NS = 500000, FILL = 128, SETS = 4 };

struct bench {
    struct image_view in, out, source; /* source: 500 x 375 */
    struct resize_workspace workspace;
    double seconds;
    bool json;
    double copy_s; /* of one image */
};

/* One way of doing one step. */
struct job {
    void (*run)(struct bench *b, const struct job *j);
    const struct op_loops *loops;
    const struct resize_kernels *kernels;
    void (*op)(struct op_pass);
    double number;
};

static struct image_view noise(int32_t width_px, int32_t height_px) {
    struct image_view v = {.width_px = width_px, .height_px = height_px};
    v.stride_bytes = (size_t)width_px * 3;
    v.data = malloc(v.stride_bytes * (size_t)height_px);
    if (v.data == NULL) {
        fprintf(stderr, "bench_steps: out of memory\n");
        exit(EXIT_FAILURE);
    }
    struct rng rng;
    rng_init(&rng, 1, RNG_INIT, 0, 0);
    for (size_t i = 0; i < v.stride_bytes * (size_t)height_px; i++) {
        v.data[i] =
            (uint8_t)(i / v.stride_bytes / 4 + i % v.stride_bytes / 9 + rng_below(&rng, 32));
    }
    return v;
}

static void run_copy(struct bench *b, const struct job *j) {
    (void)j;
    memcpy(b->out.data, b->in.data, b->in.stride_bytes * (size_t)b->in.height_px);
}

static void run_op(struct bench *b, const struct job *j) {
    j->op((struct op_pass){j->loops, &b->out, &b->in});
}

/* Steps that the pipeline takes in place are measured so: again and again on what they made. */
static void run_in_place(struct bench *b, const struct job *j) {
    j->op((struct op_pass){j->loops, &b->out, &b->out});
}

static void run_blend(struct bench *b, const struct job *j) {
    op_brightness((struct op_pass){j->loops, &b->out, &b->out}, (float)j->number);
}

static void run_contrast(struct bench *b, const struct job *j) {
    op_contrast((struct op_pass){j->loops, &b->out, &b->out}, (float)j->number);
}

static void run_saturation(struct bench *b, const struct job *j) {
    op_saturation((struct op_pass){j->loops, &b->out, &b->out}, (float)j->number);
}

static void run_hue(struct bench *b, const struct job *j) {
    op_hue((struct op_pass){j->loops, &b->out, &b->out}, (uint8_t)j->number);
}

static void run_shear_x(struct bench *b, const struct job *j) {
    op_shear_x((struct op_pass){j->loops, &b->out, &b->in}, (float)j->number, FILL);
}

static void run_shear_y(struct bench *b, const struct job *j) {
    op_shear_y((struct op_pass){j->loops, &b->out, &b->in}, (float)j->number, FILL);
}

static void run_rotate(struct bench *b, const struct job *j) {
    op_rotate((struct op_pass){j->loops, &b->out, &b->in}, j->number, FILL);
}

static void run_translate(struct bench *b, const struct job *j) {
    op_translate(&b->out, &b->in, (int32_t)j->number, 0, FILL);
}

static void run_blur(struct bench *b, const struct job *j) {
    (void)op_blur_with(j->kernels, &b->out, &b->in, j->number, b->in.width_px / 20, &b->workspace,
                       NULL);
}

static void run_resize(struct bench *b, const struct job *j) {
    const struct image_box box = {0, 0, b->source.width_px, b->source.height_px};
    (void)resize_image_with(j->kernels, &b->out, &b->source, &box, &box,
                            j->number > 1 ? RESIZE_BICUBIC : RESIZE_BILINEAR, false, &b->workspace,
                            NULL);
}

static int by_size(const void *a, const void *b) {
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

/* Rounds of about ROUND_NS; the first ones, which find how many runs that takes, do not count. */
static void measure(struct bench *b, const char *step, const char *set, const struct job *job) {
    static double rounds[MAX_ROUNDS];
    int64_t took = 0;
    int runs = 1;
    run_copy(b, job);
    for (; runs < 1 << 20; runs *= 2) {
        int64_t begin = clock_thread_cpu_ns();
        for (int i = 0; i < runs; i++) {
            job->run(b, job);
        }
        took = clock_thread_cpu_ns() - begin;
        if (took >= ROUND_NS) {
            break;
        }
    }
    int done = 0;
    int64_t start = clock_thread_cpu_ns();
    while (done < MAX_ROUNDS &&
           (done < 3 || (double)(clock_thread_cpu_ns() - start) * 1e-9 < b->seconds)) {
        int64_t begin = clock_thread_cpu_ns();
        for (int i = 0; i < runs; i++) {
            job->run(b, job);
        }
        rounds[done++] = (double)(clock_thread_cpu_ns() - begin) * 1e-9 / runs;
    }
    qsort(rounds, (size_t)done, sizeof(rounds[0]), by_size);
    double best = rounds[0];
    double median = rounds[done / 2];
    double pixels = (double)b->in.width_px * b->in.height_px;
    if (b->copy_s == 0) {
        b->copy_s = best;
    }
    if (b->json) {
        printf("{\"step\": \"%s\", \"loops\": \"%s\", \"size_px\": %d, \"mpx_per_s\": %.1f, "
               "\"median_mpx_per_s\": %.1f, \"us\": %.2f, \"of_copy\": %.4f}\n",
               step, set, (int)b->in.width_px, pixels / best * 1e-6, pixels / median * 1e-6,
               best * 1e6, b->copy_s / best);
    } else {
        printf("%-16s %-8s %9.0f Mpx/s (median %9.0f) %9.2f us %7.1f %% of memcpy\n", step, set,
               pixels / best * 1e-6, pixels / median * 1e-6, best * 1e6, 100 * b->copy_s / best);
    }
}

static const struct {
    const char *name;
    struct job job;
} with_loops[] = {
    {"autocontrast", {.run = run_in_place, .op = op_autocontrast}},
    {"equalize", {.run = run_in_place, .op = op_equalize}},
    {"brightness", {.run = run_blend, .number = 1.36}},
    {"sharpness", {.run = run_op, .op = op_sharpness}},
    {"shear_x", {.run = run_shear_x, .number = 0.21}},
    {"shear_y", {.run = run_shear_y, .number = 0.21}},
    {"rotate", {.run = run_rotate, .number = 21}},
    {"contrast", {.run = run_contrast, .number = 0.7}},
    {"saturation", {.run = run_saturation, .number = 1.4}},
    {"hue", {.run = run_hue, .number = 25}},
    {"gray", {.run = run_in_place, .op = op_gray}},
};

static const struct {
    const char *name;
    struct job job;
} with_kernels[] = {
    {"resize bilinear", {.run = run_resize, .number = 1}},
    {"resize bicubic", {.run = run_resize, .number = 2}},
    {"blur 0.5", {.run = run_blur, .number = 0.5}},
    {"blur 2", {.run = run_blur, .number = 2}},
};

int main(int argc, char **argv) {
    int32_t size_px = argc > 1 ? atoi(argv[1]) : 256;
    struct bench b = {.seconds = argc > 2 ? atof(argv[2]) : 0.2};
    b.json = argc > 3 && strcmp(argv[3], "--json") == 0;
    if (size_px < 1 || size_px > MAX_SIZE_PX || argc > 4 || (argc == 4 && !b.json)) {
        fprintf(stderr, "usage: bench_steps [SIZE_PX [SECONDS [--json]]]\n");
        return 64;
    }
    b.in = noise(size_px, size_px);
    b.out = noise(size_px, size_px);
    b.source = noise(500, 375);
    measure(&b, "memcpy", "libc", &(struct job){.run = run_copy});
    const struct op_loops *loops[LOOP_SETS_MAX];
    const struct resize_kernels *kernels[LOOP_SETS_MAX];
    int loop_sets = op_loop_sets(loops);
    int kernel_sets = resize_loop_sets(kernels);
    for (size_t i = 0; i < sizeof(with_kernels) / sizeof(with_kernels[0]); i++) {
        for (int k = 0; k < kernel_sets; k++) {
            struct job job = with_kernels[i].job;
            job.kernels = kernels[k];
            measure(&b, with_kernels[i].name, kernels[k]->name, &job);
        }
    }
    for (size_t i = 0; i < sizeof(with_loops) / sizeof(with_loops[0]); i++) {
        for (int k = 0; k < loop_sets; k++) {
            struct job job = with_loops[i].job;
            job.loops = loops[k];
            measure(&b, with_loops[i].name, loops[k]->name, &job);
        }
    }
    measure(&b, "translate", "libc", &(struct job){.run = run_translate, .number = 7});
    free(b.in.data);
    free(b.out.data);
    free(b.source.data);
    resize_workspace_fini(&b.workspace);
    return EXIT_SUCCESS;
}
