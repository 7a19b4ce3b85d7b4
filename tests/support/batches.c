#include "tests/support/batches.h"

#include "formats/base/hash.h"
#include "tests/support/test.h"

struct loader_options batches_options(uint32_t batch) {
    struct loader_options opt;
    loader_options_default(&opt);
    opt.batch_count = batch;
    opt.image_size_px = BATCHES_SIDE;
    opt.max_tokens = BATCHES_TOKENS;
    opt.seed = test_seed();
    opt.threads = 2;
    opt.read_depth = 8;
    return opt;
}

struct loader *batches_open_mix(const struct loader_source *sources,
                                uint32_t source_count,
                                const struct loader_options *opt) {
    struct loader *l = NULL;
    struct error err = {0};
    enum status s = loader_open_mix(&l, sources, source_count, opt, &err);
    if (s == STATUS_UNSUPPORTED && (opt->engine == LOADER_ENGINE_URING || opt->direct)) {
        test_skip("%s", err.text);
    }
    assert_ok(s, err);
    return l;
}

struct loader *batches_open(const char *dir, const struct loader_options *opt) {
    return batches_open_mix(&(struct loader_source){.directory = dir}, 1, opt);
}

uint64_t
batches_hash_sample(const struct loader_batch *b, const struct loader_options *opt, uint32_t i) {
    size_t pixels = (size_t)opt->image_size_px * opt->image_size_px * 3;
    uint64_t parts[] = {
        hash64(b->images + i * pixels, pixels),
        b->images2 != NULL ? hash64(b->images2 + i * pixels, pixels) : 0,
        hash64(b->tokens + (size_t)i * opt->max_tokens, opt->max_tokens * sizeof(int32_t)),
        (uint64_t)b->lengths[i],
        (uint64_t)(uint32_t)b->labels[i],
        b->sample_ids[i],
        b->text_ids[i],
    };
    return hash64(parts, sizeof(parts));
}

uint64_t batches_hash(const struct loader_batch *b, const struct loader_options *opt) {
    uint64_t h = b->global_step;
    for (uint32_t i = 0; i < b->count; i++) {
        uint64_t pair[] = {h, batches_hash_sample(b, opt, i)};
        h = hash64(pair, sizeof(pair));
    }
    return h;
}

uint64_t batches_next(struct loader *l, const struct loader_options *opt) {
    struct loader_batch b;
    struct error err = {0};
    assert_ok(loader_acquire(l, &b, &err), err);
    uint64_t h = batches_hash(&b, opt);
    loader_release(l, &b);
    return h;
}

void batches_of(uint64_t *out,
                uint32_t steps,
                const struct loader_source *sources,
                uint32_t source_count,
                const struct loader_options *opt) {
    struct loader *l = batches_open_mix(sources, source_count, opt);
    for (uint32_t i = 0; i < steps; i++) {
        out[i] = batches_next(l, opt);
    }
    loader_close(l);
}
