/*
 * ccstream-eval: what a checkpoint is worth. `retrieval`: recall between images and captions.
 */
#include <stdio.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/base/json_writer.h"
#include "formats/base/log.h"
#include "tools/cli.h"
#include "tools/openmp_wait.h"
#include "train/checkpoint.h"
#include "train/retrieval.h"

struct options {
    const char *data;
    const char *device;
    uint64_t batch, threads, loader_threads;
    bool json, quiet;
};

#define FIELD(name) CLI_FIELD(struct options, name)

static const struct cli_option rows[] = {
    {"data", 'd', CLI_STRING, FIELD(data), .metavar = "DIR", .required = true,
     .help = "dataset made by ccpack; its captions are cut into tokens by the checkpoint's own "
             "tokenizer"},
    {"batch", 'b', CLI_U64, FIELD(batch), .min = "1", .max = "32768", .default_text = "128",
     .metavar = "N", .help = "images or captions encoded at a time; no number changes the result"},
    {"device", 0, CLI_STRING, FIELD(device), .default_text = "cpu", .metavar = "NAME",
     .help = "cpu (oneDNN), or cpu-ref (plain loops, for checking only)"},
    {"threads", 't', CLI_U64, FIELD(threads), .min = "0", .max = "1024", .default_text = "0",
     .metavar = "N", .help = "compute threads; 0: all CPUs"},
    {"loader-threads", 0, CLI_U64, FIELD(loader_threads), .min = "0", .max = "1024",
     .default_text = "0", .metavar = "N", .help = "decode threads; 0: one per CPU"},
    {"json", 0, CLI_FLAG, FIELD(json), .help = "one JSON object on stdout"},
    {"quiet", 'q', CLI_FLAG, FIELD(quiet), .help = "only warnings and errors on stderr"},
};

static const struct cli_program program = {
    .name = "ccstream-eval retrieval",
    .purpose = "recall at 1, 5 and 10 between all images and all captions of a dataset",
    .usage = (const char *const[]){"CHECKPOINT --data DIR [options]", NULL},
    .examples =
        (const char *const[]){
            "ccstream-eval retrieval runs/a --data coco-test --json",
            "ccstream-eval retrieval runs/a/step-0000005466.safetensors -d flickr30k-test", NULL},
    .notes = (const char *const[]){"CHECKPOINT is a file, or a run, whose newest checkpoint is "
                                   "taken. An image counts as found by the "
                                   "best of its captions, a caption by its image; ties with "
                                   "something wrong count as lost.",
                                   NULL},
    .options = rows,
    .option_count = CLI_COUNT(rows),
    .min_arguments = 1,
    .max_arguments = 1,
};

static enum status open_model(struct dual_encoder **out,
                              struct device *dev,
                              const struct checkpoint *c,
                              const struct options *o,
                              struct error *err) {
    struct dual_encoder_options model;
    TRY(model_config_options(checkpoint_model(c), &model, err));
    model.max_batch = (int32_t)o->batch;
    model.training = false;
    TRY(dual_encoder_create(out, dev, &model, err));
    return checkpoint_load_params(c, dual_encoder_params(*out), false, err);
}

static enum status print_json(const struct retrieval_result *r, struct error *err) {
    struct json_writer w;
    json_writer_init(&w, 0);
    retrieval_write_json(&w, NULL, r);
    json_newline(&w);
    const enum status s = json_writer_status(&w, err);
    if (s == STATUS_OK) {
        (void)fwrite(w.out.data, 1, w.out.size_bytes, stdout);
    }
    json_writer_fini(&w);
    return s;
}

static void print_text(const struct retrieval_result *r) {
    char images[CLI_TEXT_BYTES];
    char texts[CLI_TEXT_BYTES];
    (void)printf("%s images, %s texts         R@1     R@5    R@10\n",
                 cli_format_count(images, r->images), cli_format_count(texts, r->texts));
    (void)printf("image to text (%%)      %8.2f%8.2f%8.2f\n", r->i2t_r1, r->i2t_r5, r->i2t_r10);
    (void)printf("text to image (%%)      %8.2f%8.2f%8.2f\n", r->t2i_r1, r->t2i_r5, r->t2i_r10);
    (void)printf("mean R@1 (%%)           %8.2f\n", r->mean_r1);
}

static enum status evaluate(const struct options *o, const char *path, struct error *err) {
    const struct log_sink log =
        log_stderr("ccstream-eval", o->quiet ? LOG_LEVEL_WARN : LOG_LEVEL_INFO);
    struct checkpoint *c = NULL;
    struct device *dev = NULL;
    struct dual_encoder *model = NULL;
    struct retrieval_result result;
    enum status s;
    TRY_OR_FAIL(s, checkpoint_open(&c, file_posix(), path, err));
    TRY_OR_FAIL(s, device_open(&dev, o->device, (int32_t)o->threads, err));
    TRY_OR_FAIL(s, open_model(&model, dev, c, o, err));
    struct retrieval_options ro = {.clean_captions = checkpoint_model(c)->clean_captions,
                                   .threads = (uint32_t)o->loader_threads,
                                   .log = &log,
                                   .should_stop = cli_interrupted_callback};
    ro.tokenizer = checkpoint_tokenizer(c, &ro.tokenizer_size_bytes);
    cli_signals_install();
    TRY_OR_FAIL(s, retrieval_evaluate(&result, model, dev, o->data, &ro, err));
    if (o->json) {
        s = print_json(&result, err);
    } else {
        print_text(&result);
    }
fail:
    dual_encoder_destroy(model);
    device_close(dev);
    checkpoint_close(c);
    return s;
}

static int run_retrieval(int argc, char **argv) {
    struct options o;
    struct cli_arguments args = {0};
    struct error err = {0};
    enum status s = cli_parse(&program, &o, &args, argc, argv, &err);
    if (s == STATUS_OK) {
        s = evaluate(&o, args.items[0], &err);
    }
    cli_arguments_fini(&args);
    return cli_exit(&program, s, &err);
}

static const struct cli_command commands[] = {
    {"retrieval", "recall between images and captions", run_retrieval},
};

static const struct cli_suite suite = {
    .name = "ccstream-eval",
    .purpose = "evaluates a checkpoint",
    .commands = commands,
    .command_count = CLI_COUNT(commands),
    .examples =
        (const char *const[]){"ccstream-eval retrieval runs/a --data coco-test --json", NULL},
};

int main(int argc, char **argv) {
    openmp_wait_briefly(argv);
    return cli_suite_main(&suite, argc, argv);
}
