/*
 * presets: settings of papers under a name, as words that stand before the command line.
 *
 * Threading : constants.
 */
#ifndef TOOLS_INSPECT_PRESETS_H
#define TOOLS_INSPECT_PRESETS_H

/* "none" first, which has no words; ends with NULL. */
extern const char *const train_preset_names[];

/* The words of train_preset_names[preset], for run_config_add_words. */
const char *const *train_preset_words(int preset, int *count);

/* Notes of --help. */
#define TRAIN_PRESETS_OF_NUCLR                                                                     \
    "Presets. nuclr-cc3m: resnet50 at 256 px and distil with 30 tokens, 256 dimensions; batch "    \
    "512, 30 epochs, AdamW at 2e-4 after a plateau of 500 steps, cosine to 1e-6, decay 0.02; "     \
    "nuclr with tau 0.01, gamma 0.8, zeta from -0.05, frozen for 5 epochs, 5e-6 with a ratio of "  \
    "0.1 (Wang's appendix G and script). nuclr-cc12m: zeta from 0. Wang starts from pretrained "   \
    "towers: --init-image, --init-text. cpu-demo: resnet10t at 32 px and tiny with mean pooling, " \
    "batch 64, 30 epochs, tau 0.05, zeta's unbiased gradient: what tools/quickstart trains."

#define TRAIN_PRESETS_OF_EMC2                                                                      \
    "Presets of EMC2 on two views (Yau's table 3; epochs, warmup and head of the published "       \
    "commands): no norms, pixels in [0, 1], --emc2-off-batch encode, half of the proposals "       \
    "discarded, 10 epochs of warmup counted on the paper's data, then a cosine to 0. emc2-stl10: " \
    "resnet18 at 96 px, 512 dimensions, Adam with L2 decay 1e-4, 100 epochs; batch 32, tau "       \
    "1/14.28, 1e-4. emc2-stl10-b256: batch 256, tau 0.2, 1e-3. emc2-imagenet100: resnet50 at 224 " \
    "px, hidden layer of 2048, 128 dimensions; batch 256, tau 1/14.28, 800 epochs, LARS at 1.2, "  \
    "decay 1e-6. emc2-stl10-subset: figure 7, 500 images, batch 4, SGD at 1e-3 without momentum, " \
    "10 epochs that are all warmup, on two fixed views of each image (--fixed-views); 'ccstudy "   \
    "gradient' measures the exact gradient. Unlike the published code, every blur has "            \
    "probability 0.5 instead of 1, ImageNet's colours change as STL's (0.8, not 0.4), and its "    \
    "head has one hidden layer fewer. The baselines: add --loss simclr, negcache (with the "       \
    "paper's refresh), or sogclr --gamma 0.9."

#endif
