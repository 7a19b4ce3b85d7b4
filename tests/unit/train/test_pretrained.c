/*
 * Towers from safetensors files: what a checkpoint or another program wrote comes back under every
 * prefix and in every real type; what does not fit is named; damaged files are refused.
 */
#include "train/model/pretrained.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tensors/safetensors.h"
#include "tests/support/test.h"
#include "train/run/checkpoint.h"

enum { TEXT_BYTES = 8192 };

struct fixture {
    struct device *dev;
    struct params *p;
    const struct file_system *fs;
    const char *path;
    char log[TEXT_BYTES];
    struct log_sink sink;
};

static void remember(void *cookie, enum log_level level, const char *text) {
    char *log = cookie;
    (void)level;
    const size_t used = strlen(log);
    (void)snprintf(log + used, TEXT_BYTES - used, "%s\n", text);
}

/* A table of one convolution, one vector, one matrix and one running statistic in two towers. */
static void open_fixture(struct fixture *f) {
    struct error err = {0};
    int32_t i;
    memset(f, 0, sizeof *f);
    f->sink = (struct log_sink){.write = remember, .cookie = f->log, .max_level = LOG_LEVEL_DEBUG};
    assert_ok(device_open(&f->dev, "cpu-ref", 1, &err), err);
    f->fs = file_posix();
    f->path = test_temp_path("w.safetensors");
    assert_ok(params_create(&f->p, &err), err);
    const struct param_spec specs[] = {
        {.name = "conv1.weight", .shape = {2, 3, 3, 4}, .conv = true},
        {.name = "bn1.weight", .shape = {2}},
        {.name = "bn1.running_var", .shape = {2}, .kind = PARAM_BUFFER},
    };
    assert_ok(params_set_prefix(f->p, "image.", &err), err);
    for (size_t k = 0; k < 3; k++) {
        assert_ok(params_add(f->p, &i, &specs[k], &err), err);
    }
    const struct param_spec words = {.name = "words.weight", .shape = {5, 3}};
    assert_ok(params_set_prefix(f->p, "text.", &err), err);
    assert_ok(params_add(f->p, &i, &words, &err), err);
    assert_ok(params_alloc(f->p, f->dev, DTYPE_F32, false, &err), err);
}

static void close_fixture(struct fixture *f) {
    params_destroy(f->p);
    device_close(f->dev);
}

struct out {
    const char *name;
    enum safetensors_dtype dtype;
    uint64_t shape[4];
    uint32_t dim_count;
};

/* Element k is (k - 3) / 4, which every real type holds; `nan` puts one into the last tensor. */
static void
write_file(struct fixture *f, const char *prefix, const struct out *t, size_t count, bool nan) {
    struct error err = {0};
    struct safetensors_writer *w;
    assert_ok(safetensors_writer_create(&w, f->fs, f->path, &err), err);
    for (size_t i = 0; i < count; i++) {
        char name[128];
        (void)snprintf(name, sizeof name, "%s%s", prefix, t[i].name);
        assert_ok(safetensors_writer_declare(w, name, t[i].dtype, t[i].shape, t[i].dim_count, &err),
                  err);
    }
    for (size_t i = 0; i < count; i++) {
        uint8_t data[2048] = {0};
        size_t n = 1;
        const size_t size = safetensors_dtype_bytes(t[i].dtype);
        for (uint32_t d = 0; d < t[i].dim_count; d++) {
            n *= t[i].shape[d];
        }
        for (size_t k = 0; k < n; k++) {
            /* quarters from -0.75: as f16, a table; as bf16, the upper half of an f32 */
            const float v =
                nan && i + 1 == count && k == 1 ? NAN : (float)((double)(k % 8) - 3.0) / 4;
            static const uint16_t f16[] = {0xBA00, 0xB800, 0xB400, 0x0000,
                                           0x3400, 0x3800, 0x3A00, 0x3C00};
            const double d = (double)v;
            uint32_t bits;
            memcpy(&bits, &v, sizeof bits);
            const uint16_t bf16 = (uint16_t)(bits >> 16);
            const void *from = size == 8                        ? (const void *)&d
                               : t[i].dtype == SAFETENSORS_BF16 ? (const void *)&bf16
                               : size == 2                      ? (const void *)&f16[k % 8]
                                                                : (const void *)&v;
            memcpy(data + k * size, from, size);
        }
        assert_ok(safetensors_writer_data(w, data, n * size, &err), err);
    }
    assert_ok(safetensors_writer_finish(w, &err), err);
    safetensors_writer_destroy(w);
}

static struct out tensor_of(const char *name, enum safetensors_dtype t, uint32_t dims) {
    struct out o = {.name = name, .dtype = t, .dim_count = dims, .shape = {2}};
    if (dims == 4) {
        const uint64_t conv[] = {2, 4, 3, 3}; /* PyTorch's order of (2, 3, 3, 4) */
        memcpy(o.shape, conv, sizeof conv);
    }
    return o;
}

static void assert_values(const struct fixture *f, const char *name) {
    struct error err = {0};
    float v[256];
    const int32_t i = params_find(f->p, name);
    const struct param_info info = params_info(f->p, i);
    assert_ok(params_read(f->p, i, PARAM_VALUE, v, (size_t)info.count * sizeof *v, &err), err);
    for (int64_t k = 0; k < info.count; k++) {
        if (v[k] != (float)((double)(k % 8) - 3.0) / 4) {
            fail_msg("%s %lld is %g", name, (long long)k, (double)v[k]);
        }
    }
}

TEST(every_prefix_and_real_type_is_read) {
    static const char *const prefixes[] = {"", "image.", "distilbert.", "model.", "module."};
    static const enum safetensors_dtype types[] = {
        SAFETENSORS_F32, SAFETENSORS_F16, SAFETENSORS_BF16, SAFETENSORS_F64, SAFETENSORS_F32};
    for (int k = 0; k < 5; k++) {
        struct error err = {0};
        struct fixture f;
        open_fixture(&f);
        const struct out t[] = {tensor_of("conv1.weight", types[k], 4),
                                tensor_of("bn1.running_var", types[(k + 1) % 5], 1),
                                tensor_of("fc.weight", SAFETENSORS_I64, 1),
                                tensor_of("bn1.num_batches_tracked", SAFETENSORS_I64, 1),
                                tensor_of("fc.bias", SAFETENSORS_I64, 1),
                                tensor_of("bn1.weight", types[(k + 2) % 5], 1)};
        write_file(&f, prefixes[k], t, 6, false);
        assert_ok(pretrained_load(f.p, "image.", f.fs, f.path, &f.sink, &err), err);
        assert_values(&f, "image.conv1.weight");
        assert_values(&f, "image.bn1.weight");
        assert_values(&f, "image.bn1.running_var");
        char extras[64];
        (void)snprintf(extras, sizeof extras, "not used: %sfc.weight, %sfc.bias\n", prefixes[k],
                       prefixes[k]);
        assert_non_null(strstr(f.log, extras));
        assert_null(strstr(f.log, "num_batches_tracked"));
        close_fixture(&f);
    }
}

TEST(pickles_are_refused_with_the_line_that_converts_them) {
    static const char *const starts[] = {"PK\003\004 a zip", "\200\002 a pickle"};
    for (int k = 0; k < 2; k++) {
        struct error err = {0};
        struct fixture f;
        open_fixture(&f);
        test_write_file(f.path, starts[k], strlen(starts[k]));
        assert_status(pretrained_load(f.p, "image.", f.fs, f.path, &f.sink, &err),
                      STATUS_UNSUPPORTED, err);
        assert_non_null(strstr(err.text, "is a PyTorch pickle"));
        assert_non_null(strstr(f.log, "python3 -c \"import sys, torch, safetensors.torch as s; "));
        assert_non_null(strstr(f.log, "w.safetensors' weights.safetensors"));
        close_fixture(&f);
    }
}

TEST(every_mismatch_is_named_and_nothing_is_written) {
    struct error err = {0};
    struct fixture f;
    open_fixture(&f);
    struct out t[] = {tensor_of("conv1.weight", SAFETENSORS_F32, 4),
                      tensor_of("bn1.weight", SAFETENSORS_F32, 1)};
    t[0].shape[1] = 3;
    write_file(&f, "", t, 2, false);
    assert_int_equal(pretrained_load(f.p, "image.", f.fs, f.path, &f.sink, &err), STATUS_MISMATCH);
    assert_non_null(strstr(err.text, "2 of the tower's 3 tensors do not fit"));
    assert_non_null(strstr(f.log, "conv1.weight is (2, 3, 3, 3), the model has (2, 4, 3, 3)"));
    assert_non_null(strstr(f.log, "bn1.running_var is missing"));
    const struct tensor gamma = params_tensor(f.p, params_find(f.p, "image.bn1.weight"));
    assert_true(((const float *)gamma.data)[0] == 0.0f);
    close_fixture(&f);
}

TEST(numbers_that_are_no_weights_are_refused) {
    struct error err = {0};
    struct fixture f;
    open_fixture(&f);
    struct out t[] = {tensor_of("conv1.weight", SAFETENSORS_F32, 4),
                      tensor_of("bn1.running_var", SAFETENSORS_F32, 1),
                      tensor_of("bn1.weight", SAFETENSORS_F32, 1)};
    write_file(&f, "", t, 3, true);
    assert_int_equal(pretrained_load(f.p, "image.", f.fs, f.path, NULL, &err), STATUS_CORRUPT);
    assert_non_null(strstr(err.text, "element 1 of bn1.weight"));
    t[2].dtype = SAFETENSORS_I32;
    write_file(&f, "", t, 3, false);
    assert_int_equal(pretrained_load(f.p, "image.", f.fs, f.path, NULL, &err), STATUS_MISMATCH);
    assert_non_null(strstr(err.text, "bn1.weight is I32"));
    close_fixture(&f);
}

TEST(damaged_files_are_refused) {
    struct error err = {0};
    struct fixture f;
    open_fixture(&f);
    const struct out t[] = {tensor_of("conv1.weight", SAFETENSORS_F32, 4)};
    write_file(&f, "", t, 1, false);
    const char *path = test_temp_path("cut.safetensors");
    static uint8_t bytes[4096];
    FILE *in = fopen(f.path, "rb");
    assert_non_null(in);
    const size_t size = fread(bytes, 1, sizeof bytes, in);
    assert_true(size > 64 && size < sizeof bytes);
    assert_int_equal(fclose(in), 0);
    for (size_t cut = 0; cut < size; cut += cut < 16 ? 1 : size / 13) {
        FILE *out = fopen(path, "wb");
        assert_non_null(out);
        assert_int_equal(fwrite(bytes, 1, cut, out), cut);
        assert_int_equal(fclose(out), 0);
        const enum status s = pretrained_load(f.p, "image.", file_posix(), path, NULL, &err);
        assert_int_equal(s, STATUS_CORRUPT);
    }
    assert_int_equal(pretrained_load(f.p, "image.", f.fs, "none", NULL, &err), STATUS_NOTFOUND);
    close_fixture(&f);
}

/* The sums are those of torch's interpolate, bicubic and antialiased, in float64. */
TEST(positions_of_other_image_sizes_are_interpolated_as_in_torch) {
    static const struct {
        int64_t from, to;
        double first[4], weighted, squares;
    } golden[] = {
        {2,
         3,
         {-1.0744736842105262, 0.5791052631578948, -0.4837894736842105, 0.03821052631578945},
         -23.051684210526318,
         5.643497617728532},
        {5,
         3,
         {-0.4209041420118343, 0.15529704142011835, -0.33533452593917706, 0.2193667262969588},
         -2.2622586307647525,
         0.9692317838576626},
        {3,
         7,
         {-1.2277218934911245, 0.7158757396449708, -0.9828644790112935, 0.4870366503302794},
         15.07401890234712,
         25.193707428780833}};
    static const char name[] = "visual.positional_embedding";
    const char *path = test_temp_path("positions.safetensors");
    struct error err = {0};
    struct device *dev;
    assert_ok(device_open(&dev, "cpu-ref", 1, &err), err);
    for (size_t g = 0; g < sizeof golden / sizeof *golden; g++) {
        const int64_t from = golden[g].from * golden[g].from;
        const int64_t to = golden[g].to * golden[g].to;
        const uint64_t shape[] = {(uint64_t)(1 + from), 2};
        const struct param_spec spec = {.name = name, .shape = {1 + to, 2}};
        float data[2 * 26] = {7, 8}; /* the class token's row stays */
        float back[2 * 50];
        struct safetensors_writer *w;
        struct safetensors *file;
        struct params *p;
        int32_t index;
        for (int64_t i = 0; i < 2 * from; i++) {
            data[2 + i] =
                (float)((double)((uint64_t)i * UINT64_C(2654435761) % 1000) / 500.0 - 1.0);
        }
        assert_ok(safetensors_writer_create(&w, file_posix(), path, &err), err);
        assert_ok(safetensors_writer_declare(w, name, SAFETENSORS_F32, shape, 2, &err), err);
        assert_ok(safetensors_writer_data(w, data, (size_t)(2 + 2 * from) * sizeof *data, &err),
                  err);
        assert_ok(safetensors_writer_finish(w, &err), err);
        safetensors_writer_destroy(w);
        assert_ok(params_create(&p, &err), err);
        assert_ok(params_add(p, &index, &spec, &err), err);
        assert_ok(params_alloc(p, dev, DTYPE_F32, false, &err), err);
        assert_ok(safetensors_open(&file, file_posix(), path, &err), err);
        assert_ok(pretrained_load_model(p, MODEL_NAMES_OPEN_CLIP, true, file, path, &err), err);
        assert_ok(
            params_read(p, index, PARAM_VALUE, back, (size_t)(2 + 2 * to) * sizeof *back, &err),
            err);
        double weighted = 0.0;
        double squares = 0.0;
        for (int64_t i = 0; i < 2 * to; i++) {
            weighted += (double)(i + 1) * (double)back[2 + i];
            squares += (double)back[2 + i] * (double)back[2 + i];
        }
        assert_true(back[0] == 7.0f && back[1] == 8.0f);
        for (int i = 0; i < 4; i++) {
            assert_true(fabs((double)back[2 + i] - golden[g].first[i]) < 1e-6);
        }
        assert_true(fabs(weighted - golden[g].weighted) < 1e-3);
        assert_true(fabs(squares - golden[g].squares) < 1e-5);
        safetensors_close(file);
        params_destroy(p);
    }
    device_close(dev);
}
