#include "tools/ccstream_train/ccstream_train_internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "formats/base/file_io.h"
#include "formats/dataset/dataset_tokenizer.h"
#include "train/run/checkpoint.h"
#include "train/run/run_dir.h"

static void print_memory(FILE *out, const struct dual_encoder_memory *m) {
    const struct {
        const char *name;
        size_t size_bytes;
    } lines[] = {{"parameters", m->values_bytes},   {"gradients", m->gradients_bytes},
                 {"optimiser", m->moments_bytes},   {"activations", m->activations_bytes},
                 {"workspace", m->workspace_bytes}, {"input", m->input_bytes},
                 {"loss", m->loss_bytes},           {"state", m->state_bytes},
                 {"process", m->process_bytes},     {"total", m->total_bytes}};
    (void)fprintf(out, "%-12s %s\n", "trained", cli_format_count((uint64_t)m->parameter_count));
    for (size_t i = 0; i < CLI_COUNT(lines); i++) {
        if (lines[i].size_bytes > 0) {
            (void)fprintf(out, "%-12s %s\n", lines[i].name, cli_format_bytes(lines[i].size_bytes));
        }
    }
}

/* Besides the plan, a GPU's memory holds CUDA's context, its libraries, cuBLASLt's workspace and
 * the captured graphs, which took 590 to 602 MiB of an H200 for ResNet-50 and for vision
 * transformers (tests/bench/results/gpu-2026-11-28); cuDNN's workspace, limited to 1 GiB per plan;
 * and in bf16 a micro-batch of images as squares of 2x2 pixels of 4 channels for the first
 * convolution (kernels/cuda/conv/conv_stem.cu). */
static void
print_gpu(FILE *out, const struct dual_encoder_memory *m, const struct trainer_options *t) {
    const size_t own_bytes = (size_t)640 << 20;
    const size_t side = t->image_size_px / 2 + 4;
    const size_t count = t->micro_batch_count != 0 ? t->micro_batch_count : t->batch_count;
    const size_t stem_bytes = t->dtype == DTYPE_BF16 ? count * side * side * 16 * 2 : 0;
    const size_t workspace_bytes = ((size_t)1 << 30) + stem_bytes;
    (void)fprintf(out, "%-12s %s for CUDA, its libraries and captured steps\n", "device",
                  cli_format_bytes(own_bytes));
    (void)fprintf(out, "%-12s up to %s of workspace for convolutions\n", "cuDNN",
                  cli_format_bytes(workspace_bytes));
    (void)fprintf(out, "%-12s %s of the GPU\n", "at most",
                  cli_format_bytes(m->total_bytes + own_bytes + workspace_bytes));
}

/* Sizes of the data that determine the memory of state and model. */
struct sizes {
    uint32_t vocab_count;
    uint64_t ids, texts;
};

static enum status plan(struct dual_encoder_memory *out,
                        const struct trainer_options *t,
                        const struct sizes *s,
                        struct error *err) {
    return trainer_plan(out, t, s->vocab_count, s->ids, s->texts, err);
}

/* Whether --task blocks accepts this batch: see trainer_options.blocks. */
static bool holds_blocks(const struct trainer_options *t, uint64_t batch) {
    const uint64_t each = t->blocks.size + 1;
    return t->task != TRAINER_BLOCKS || ((t->blocks.captions || batch % 2 == 0) &&
                                         batch % each == 0 && batch / each > t->blocks.negatives);
}

/* The same model with a quarter to four times the batch, if it has whole samples. */
static enum status print_batches(FILE *out,
                                 const struct trainer_options *t,
                                 const struct sizes *sizes,
                                 struct error *err) {
    const uint32_t positives = trainer_positives(t);
    (void)fprintf(out, "\n%8s %12s %12s %12s %12s\n", "batch", "micro-batch", "activations",
                  "workspace", "total");
    for (uint64_t batch = t->batch_count / 4; batch <= (uint64_t)t->batch_count * 4; batch *= 2) {
        struct trainer_options o = *t;
        struct dual_encoder_memory m;
        if (batch < 2) {
            batch = 2;
        }
        if (batch > LOSS_MAX_BATCH) {
            break;
        }
        if (batch % positives != 0 || batch / positives < 2 || !holds_blocks(t, batch)) {
            continue;
        }
        o.batch_count = (uint32_t)batch;
        if (o.micro_batch_count == 0 || o.micro_batch_count > o.batch_count) {
            o.micro_batch_count = o.batch_count;
        }
        if (batch > LOSS_MAX_WHOLE && batch > t->batch_count &&
            plan(&m, &o, sizes, NULL) == STATUS_USAGE) {
            break; /* a loss that needs the whole matrix */
        }
        TRY(plan(&m, &o, sizes, err));
        (void)fprintf(out, "%8u %12u %12s %12s %12s\n", (unsigned)o.batch_count,
                      (unsigned)o.micro_batch_count, cli_format_bytes(m.activations_bytes),
                      cli_format_bytes(m.workspace_bytes), cli_format_bytes(m.total_bytes));
    }
    return STATUS_OK;
}

/* The tokenizer that a run would use. */
static enum status open_tokenizer(struct tokenizer **out,
                                  const struct trainer_options *t,
                                  const struct manifest *manifest,
                                  struct error *err) {
    const char *data = t->sources[0].directory;
    bool resumes = false;
    TRY(t->run != NULL ? run_dir_has_checkpoint(t->run, &resumes, err) : STATUS_OK);
    if (resumes || t->init != NULL) {
        struct checkpoint *c;
        size_t size_bytes;
        TRY(checkpoint_open(&c, file_posix(), resumes ? t->run : t->init, err));
        const void *bytes = checkpoint_tokenizer(c, &size_bytes);
        const enum status s =
            bytes != NULL ? tokenizer_open(out, bytes, size_bytes, err) : STATUS_OK;
        checkpoint_close(c);
        if (s != STATUS_OK || bytes != NULL) {
            return s;
        }
    }
    if (trainer_tokenizer(t) != NULL) {
        return tokenizer_load(out, trainer_tokenizer(t), err);
    }
    TRY(dataset_tokenizer_open(out, data, manifest, file_system_of(data), err));
    return *out != NULL ? STATUS_OK
                        : error_set(err, STATUS_USAGE,
                                    "%s has no tokenizer; make one with 'ccpack tokenizer %s', or "
                                    "pass one with --tokenizer",
                                    data, data);
}

/* Ids and captions of all datasets of the run together. */
static enum status
find_sizes(struct sizes *out, const struct trainer_options *t, struct error *err) {
    struct tokenizer *tokenizer = NULL;
    struct manifest m;
    enum status s = STATUS_OK;
    *out = (struct sizes){0};
    for (uint32_t i = 0; i < t->source_count && s == STATUS_OK; i++) {
        const char *directory = t->sources[i].directory;
        s = manifest_read(&m, file_system_of(directory), directory, err);
        if (s != STATUS_OK) {
            break;
        }
        out->ids += m.id_space;
        out->texts += m.texts;
        if (i == 0 && (t->task == TRAINER_PAIRS || t->blocks.captions)) {
            s = open_tokenizer(&tokenizer, t, &m, err);
            out->vocab_count = s == STATUS_OK ? tokenizer_vocab_count(tokenizer) : 0;
        }
        manifest_fini(&m);
    }
    tokenizer_close(tokenizer);
    return s;
}

enum status memory_plan_print(const struct trainer_options *t, bool on_gpu, struct error *err) {
    struct dual_encoder_memory memory;
    struct sizes sizes;
    TRY(find_sizes(&sizes, t, err));
    TRY(plan(&memory, t, &sizes, err));
    print_memory(stdout, &memory);
    if (on_gpu) {
        print_gpu(stdout, &memory, t);
    }
    return print_batches(stdout, t, &sizes, err);
}

enum status
memory_plan_check(const struct trainer_options *t, uint64_t free_bytes, struct error *err) {
    struct dual_encoder_memory m;
    struct trainer_options o = *t;
    struct sizes sizes;
    TRY(find_sizes(&sizes, t, err));
    TRY(plan(&m, &o, &sizes, err));
    const uint64_t need_bytes = m.total_bytes;
    if (free_bytes == 0 || need_bytes <= free_bytes) {
        return STATUS_OK;
    }
    o.micro_batch_count = t->micro_batch_count != 0 ? t->micro_batch_count : t->batch_count;
    size_t least_bytes = m.total_bytes; /* more micro-batches may take more copies of gradients */
    uint32_t least = o.micro_batch_count;
    while (m.total_bytes > free_bytes && o.micro_batch_count > 2) {
        o.micro_batch_count = (o.micro_batch_count + 1) / 2;
        TRY(plan(&m, &o, &sizes, err));
        if (m.total_bytes < least_bytes) {
            least_bytes = m.total_bytes;
            least = o.micro_batch_count;
        }
    }
    FAIL_IF(m.total_bytes > free_bytes, err, STATUS_NOMEM,
            "this run needs %s of memory, %s are available; not even --micro-batch %u "
            "fits (%s): use a smaller --image-size, --image-tower or --batch-size, or "
            "--preset cpu-demo; --dry-run shows the plan",
            cli_format_bytes(need_bytes), cli_format_bytes(free_bytes), (unsigned)least,
            cli_format_bytes(least_bytes));
    return error_set(
        err, STATUS_NOMEM,
        "this run needs %s of memory, %s are available. --micro-batch %u fits in %s (same "
        "full-batch loss); --preset cpu-demo is a small model for CPUs; --dry-run shows the plan",
        cli_format_bytes(need_bytes), cli_format_bytes(free_bytes), (unsigned)o.micro_batch_count,
        cli_format_bytes(m.total_bytes));
}
