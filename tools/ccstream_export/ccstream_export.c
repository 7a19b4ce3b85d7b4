/*
 * ccstream-export: a trained model as files for timm, transformers or open_clip, or plain
 * safetensors.
 */
#include <stdio.h>

#include "formats/base/file_io.h"
#include "tools/ccstream_export/export_internal.h"
#include "tools/cli/cli.h"
#include "tools/cli/output.h"
#include "tools/cli/path_kind.h"

struct options {
    const char *out;
    int format;
    bool quiet, ema;
    bool force;
};

/* In the order of enum format. */
static const char *const format_choices[] = {"timm", "transformers", "open_clip", "safetensors",
                                             NULL};

static const struct cli_option rows[] = {
    {"format", 'f', CLI_ENUM, CLI_FIELD(struct options, format), .choices = format_choices,
     .default_text = "safetensors", .metavar = "NAME",
     .help = "format of the files, described below"},
    {"out", 'o', CLI_STRING, CLI_FIELD(struct options, out), .metavar = "DIR", .required = true,
     .help = "folder for the files; created if missing"},
    OUTPUT_FORCE_ROW(struct options, force),
    {"ema", 0, CLI_FLAG, CLI_FIELD(struct options, ema),
     .help = "use the averaged weights (EMA) of a run with --ema instead of the weights"},
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct options, quiet),
     .help = "do not print how to load the files"},
};

static const struct cli_entry format_list[] = {
    {"timm", "the image tower without its projection: timm.create_model(NAME, num_classes=0, "
             "checkpoint_path='DIR/model.safetensors')"},
    {"transformers",
     "text/ for DistilBertModel.from_pretrained, image/ for AutoModel.from_pretrained; DIR for "
     "VisionTextDualEncoderModel.from_pretrained, only if the run was trained with "
     "--projection-bias off, because that model's projections have no bias"},
    {"open_clip", "the whole model: open_clip.create_model_and_transforms('local-dir:DIR'), with "
                  "open_clip's own towers (--model) or timm's and BERT's. Tokenizers other than "
                  "CLIP's, and BERT's configuration, are referenced by the path of DIR"},
    {"safetensors",
     "the whole model with ccstream's tensor names (--model: open_clip's), for any program"},
    {NULL, NULL}};

static const struct cli_program program = {
    .name = "ccstream-export",
    .purpose = "writes a trained model as files that other programs load",
    .usage = CLI_TEXTS("CHECKPOINT -o DIR [options]"),
    .examples = CLI_TEXTS("ccstream-export --format open_clip runs/a -o a-open-clip",
                          "ccstream-export --format timm runs/a -o a-timm"),
    .notes = CLI_TEXTS(
        "CHECKPOINT is a run, a checkpoint, or a folder with an open_clip model "
        "(open_clip_config.json) or a CLIPModel or SiglipModel of Hugging Face (config.json).",
        "Weights are f32. The text tower is written as DistilBERT, or as BERT with zero token "
        "types for programs that do not accept DistilBERT. A WordPiece vocabulary becomes "
        "vocab.txt and tokenizer_config.json, byte-level BPE tokenizer.json, a SentencePiece model "
        "or CLIP's merges tokenizer.model. Optimiser state and per-sample state are not exported. "
        "safetensors of a run on images alone: embeddings must be L2-normalised unless config.json "
        "has raw_embeddings: true (--task blocks)."),
    .list_heading = "Formats",
    .list = format_list,
    CLI_OPTIONS(rows),
    .arguments = {1, 1},
};

enum format { FORMAT_TIMM, FORMAT_TRANSFORMERS, FORMAT_OPEN_CLIP, FORMAT_SAFETENSORS };

static enum status (*const writers[])(const struct export_job *job, struct error *err) = {
    [FORMAT_TIMM] = export_timm,
    [FORMAT_TRANSFORMERS] = export_transformers,
    [FORMAT_OPEN_CLIP] = export_open_clip,
    [FORMAT_SAFETENSORS] = export_safetensors};

/* Files that identify an exported folder: each format writes one of them first. */
static const char *const written[] = {"model.safetensors", "open_clip_model.safetensors",
                                      "text/model.safetensors", NULL};

/* The line of Python that loads the files. */
static void print_use(const struct options *o, const char *tower) {
    switch ((enum format)o->format) {
    case FORMAT_TIMM:
        printf("timm.create_model('%s', num_classes=0, checkpoint_path='%s/model.safetensors')\n",
               tower, o->out);
        break;
    case FORMAT_TRANSFORMERS:
        printf("transformers.DistilBertModel.from_pretrained('%s/text')\n", o->out);
        break;
    case FORMAT_OPEN_CLIP:
        printf("open_clip.create_model_and_transforms('local-dir:%s')\n", o->out);
        break;
    case FORMAT_SAFETENSORS:
        printf("safetensors.torch.load_file('%s/model.safetensors')\n", o->out);
        break;
    }
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    const struct log_sink log = log_stderr(program.name, LOG_LEVEL_INFO);
    const struct file_system *fs = file_posix();
    struct checkpoint *checkpoint = NULL;
    struct safetensors *file = NULL;
    bool unreadable = false;
    enum status s;
    TRY(path_check_checkpoint(a->items[0], err));
    TRY(output_check_own_folder(o->out, written, o->force, err));
    TRY_OR_FAIL(s, checkpoint_open(&checkpoint, fs, a->items[0], err));
    TRY_OR_FAIL(s, checkpoint_check_finite(checkpoint, err));
    TRY_OR_FAIL(s, safetensors_open(&file, fs, checkpoint_path(checkpoint), err));
    if (o->ema) {
        TRY_OR_FAIL(s, checkpoint_use_average(checkpoint, err));
        TRY_OR_FAIL(s, checkpoint_swap_average(file, checkpoint_path(checkpoint), err));
    }
    const struct export_job job = {.checkpoint = checkpoint,
                                   .file = file,
                                   .out = o->out,
                                   .log = &log,
                                   .unreadable = &unreadable};
    TRY_OR_FAIL(s, writers[o->format](&job, err));
    if (!o->quiet && (o->format != FORMAT_OPEN_CLIP || !unreadable)) {
        print_use(o, checkpoint_model(checkpoint)->image_tower);
    }
fail:
    safetensors_close(file);
    checkpoint_close(checkpoint);
    return s;
}

CLI_MAIN(main, program, struct options, run)
