/*
 * The settings of FastCLIP (Wei et al., 2024; CC12M), of NUCLR (Wang et al., ICLR 2025, appendix G;
 * its CC3M script) and of EMC2 (Yau et al., ICML 2024, table 3; other options as in the commands of
 * its published code).
 */
#include "tools/inspect/train_options.h"

#include <stddef.h>

/* Both settings of NUCLR. */
#define NUCLR_WORDS                                                                                \
    "--task=pairs", "--loss=nuclr", "--image-tower=resnet50", "--text-tower=distil",               \
        "--image-size=256", "--stem=standard", "--max-tokens=30", "--embed-dim=256",               \
        "--dropout=0.1", "--text-pool=first", "--augment=paper", "--image-norm=clip",              \
        "--batch-size=512", "--epochs=30", "--optimizer=adamw", "--lr=2e-4", "--min-lr=1e-6",      \
        "--warmup=plateau", "--warmup-steps=500", "--weight-decay=0.02", "--beta1=0.9",            \
        "--beta2=0.999", "--adam-eps=1e-8", "--clip-norm=0", "--tau=0.01", "--gamma=0.8",          \
        "--xi0=0", "--xi=signed", "--zeta-lr=5e-6", "--zeta-lr-image-ratio=0.1",                   \
        "--zeta-grad-ema=0.9", "--zeta-freeze-epochs=5", "--zeta-gradient=paper"

static const char *const nuclr_cc3m[] = {NUCLR_WORDS, "--zeta0=-0.05"};
static const char *const nuclr_cc12m[] = {NUCLR_WORDS, "--zeta0=0"};

static const char *const cpu_demo[] = {
    "--loss=nuclr",    "--image-tower=resnet10t",  "--text-tower=tiny", "--text-pool=mean",
    "--image-size=32", "--batch-size=64",          "--epochs=30",       "--lr=1e-3",
    "--tau=0.05",      "--zeta-gradient=unbiased", "--augment=crop"};

/* The baseline of FastCLIP's comparison on CC3M: the published model and schedule, CLIP's loss. */
static const char *const clip_cc3m[] = {
    "--task=pairs",  "--model=RN50",    "--loss=clip",      "--temperature=global",
    "--tau=0.07",    "--tau-min=0.01",  "--tau-max=1",      "--batch-size=1024",
    "--epochs=37",   "--lr=1e-3",       "--min-lr=0",       "--warmup-steps=10000",
    "--beta1=0.9",   "--beta2=0.999",   "--adam-eps=1e-8",  "--weight-decay=0.1",
    "--clip-norm=0", "--warmup=linear", "--optimizer=adamw"};

/* FastCLIP's v3. On CC12M, options missing in the paper are open_clip's for vision transformers. */
#define FASTCLIP_WORDS                                                                             \
    "--task=pairs", "--loss=fastclip-v3", "--optimizer=adamw", "--min-lr=0", "--warmup=linear",    \
        "--warmup-steps=10000", "--beta1=0.9", "--weight-decay=0.1", "--clip-norm=0",              \
        "--tau=0.07", "--gamma=0.2"

static const char *const fastclip_cc3m[] = {
    FASTCLIP_WORDS,  "--model=RN50",    "--batch-size=1024", "--epochs=37", "--lr=1e-3",
    "--beta2=0.999", "--adam-eps=1e-8", "--tau-lr=2e-4",     "--rho=6.5",   "--gamma-epochs=18"};
static const char *const fastclip_cc12m[] = {
    FASTCLIP_WORDS, "--model=ViT-B-32", "--batch-size=2048", "--epochs=33", "--lr=4e-4",
    "--beta2=0.98", "--adam-eps=1e-6",  "--tau-lr=1e-4",     "--rho=8.5",   "--gamma-epochs=16"};

/* SCENT's contrastive run, on 14 million pairs of DFN; options missing in its script are as above.
 */
static const char *const scent_dfn[] = {
    "--task=pairs",     "--model=ViT-B-32", "--loss=scent",         "--optimizer=adamw",
    "--min-lr=0",       "--warmup=linear",  "--warmup-steps=500",   "--beta1=0.9",
    "--beta2=0.98",     "--adam-eps=1e-6",  "--weight-decay=0.2",   "--clip-norm=0",
    "--epochs=24",      "--lr=5e-4",        "--batch-size=4096",    "--tau=0.07",
    "--tau-lr=6.25e-5", "--rho=11",         "--gamma-log-alpha=10", "--eps=1e-6"};

/* Shared by all rows of EMC2's table. Its P is half of R = 2B - 2; its beta is 1 / tau. */
#define EMC2_WORDS                                                                                 \
    "--task=two-views", "--loss=emc2", "--emc2-off-batch=view", "--burn-in=0.5",                   \
        "--stem=standard", "--norm-layer=none", "--augment=simclr", "--image-norm=none",           \
        "--min-lr=0", "--warmup=linear", "--clip-norm=0"

/* 3,125 and 390 steps are an epoch of its 100,000 images. */
#define STL10_WORDS                                                                                \
    EMC2_WORDS, "--image-tower=resnet18", "--image-size=96", "--hidden-dim=512",                   \
        "--embed-dim=512", "--weight-decay=1e-4"
#define STL10_ADAM_WORDS                                                                           \
    STL10_WORDS, "--optimizer=adam", "--beta1=0.9", "--beta2=0.999", "--adam-eps=1e-8",            \
        "--epochs=100"

static const char *const emc2_stl10[] = {STL10_ADAM_WORDS,       "--batch-size=32",
                                         "--tau=0.070028",       "--lr=1e-4",
                                         "--warmup-steps=31250", "--cache-refresh=0.01024"};
static const char *const emc2_stl10_b256[] = {STL10_ADAM_WORDS,      "--batch-size=256",
                                              "--tau=0.2",           "--lr=1e-3",
                                              "--warmup-steps=3900", "--cache-refresh=0.1"};

/* Figure 7: 125 steps per epoch. The published command uses SGD, although section 4 has Adam. */
static const char *const emc2_stl10_subset[] = {
    STL10_WORDS,           "--fixed-views=on",   "--optimizer=sgdm", "--momentum=0",
    "--epochs=10",         "--batch-size=4",     "--tau=0.2",        "--lr=1e-3",
    "--warmup-steps=1250", "--cache-refresh=0.1"};

/* 487 steps per epoch of its 124,689 images. */
static const char *const emc2_imagenet100[] = {
    EMC2_WORDS,          "--image-tower=resnet50", "--image-size=224",
    "--hidden-dim=2048", "--embed-dim=128",        "--optimizer=lars",
    "--momentum=0.9",    "--trust-coeff=0.001",    "--weight-decay=1e-6",
    "--epochs=800",      "--batch-size=256",       "--tau=0.070028",
    "--lr=1.2",          "--warmup-steps=4870"};

#define PRESET_LIST(X)                                                                             \
    X("nuclr-cc3m", nuclr_cc3m)                                                                    \
    X("nuclr-cc12m", nuclr_cc12m)                                                                  \
    X("cpu-demo", cpu_demo)                                                                        \
    X("clip-cc3m", clip_cc3m)                                                                      \
    X("fastclip-cc3m", fastclip_cc3m)                                                              \
    X("fastclip-cc12m", fastclip_cc12m)                                                            \
    X("scent-dfn", scent_dfn)                                                                      \
    X("emc2-stl10", emc2_stl10)                                                                    \
    X("emc2-stl10-b256", emc2_stl10_b256)                                                          \
    X("emc2-stl10-subset", emc2_stl10_subset)                                                      \
    X("emc2-imagenet100", emc2_imagenet100)

const char *const train_preset_names[] = {"none",
#define X(name, list) name,
                                          PRESET_LIST(X)
#undef X
                                              NULL};

const char *const *train_preset_words(int preset, int *count) {
    static const char *const none[] = {NULL};
    static const struct {
        const char *const *words;
        int count;
    } presets[] = {{none, 0},
#define X(name, list) {list, (int)(sizeof(list) / sizeof((list)[0]))},
                   PRESET_LIST(X)
#undef X
    };
    *count = presets[preset].count;
    return presets[preset].words;
}
