/*
 * A model of open_clip or Hugging Face: the first two bytes are the size of its configuration, the
 * rest is the file of weights. What opens describes a model whose own description opens again as
 * the same; weights are loaded, or refused, where the model is small.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/file_memory.h"
#include "train/model/foreign.h"
#include "train/model/open_clip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

static void
put_file(const struct file_system *fs, const char *name, const uint8_t *data, size_t size_bytes) {
    struct file *f = NULL;
    demand(fs->open(fs->context, &f, name, FILE_REPLACE, NULL) == STATUS_OK);
    demand(size_bytes == 0 || fs->write(f, data, size_bytes, NULL) == STATUS_OK);
    fs->close(f);
}

static void load(const struct foreign_model *m, struct dual_encoder_options o) {
    struct device *dev = NULL;
    struct dual_encoder *model = NULL;
    struct dual_encoder_memory memory;
    o.training = false;
    if (dual_encoder_plan(&memory, &o, NULL) != STATUS_OK || memory.total_bytes > 16 << 20) {
        return;
    }
    demand(device_open(&dev, "cpu-ref", 1, NULL) == STATUS_OK);
    demand(dual_encoder_create(&model, dev, &o, NULL) == STATUS_OK);
    (void)pretrained_load_model(dual_encoder_params(model), m->names, true, m->file, "in", NULL);
    dual_encoder_destroy(model);
    device_close(dev);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    static const char *const configs[] = {"open_clip_config.json", "config.json"};
    if (size_bytes < 2) {
        return 0;
    }
    size_t config_bytes = (size_t)data[0] | (size_t)data[1] << 8;
    config_bytes = config_bytes < size_bytes - 2 ? config_bytes : size_bytes - 2;
    for (int k = 0; k < 2; k++) {
        struct file_system *fs = NULL;
        struct foreign_model m;
        demand(file_memory_create(&fs, NULL) == STATUS_OK);
        put_file(fs, configs[k], data + 2, config_bytes);
        put_file(fs, "model.safetensors", data + 2 + config_bytes, size_bytes - 2 - config_bytes);
        if (foreign_open(&m, fs, "model.safetensors", NULL) == STATUS_OK) {
            char text[OPEN_CLIP_CONFIG_BYTES];
            char again[OPEN_CLIP_CONFIG_BYTES];
            demand(open_clip_text(text, &m.options, NULL) == STATUS_OK);
            demand(open_clip_config(again, text, NULL) == STATUS_OK && strcmp(text, again) == 0);
            load(&m, m.options);
        }
        foreign_fini(&m);
        file_memory_destroy(fs);
    }
    return 0;
}
