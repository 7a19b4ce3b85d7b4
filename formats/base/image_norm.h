/*
 * image_norm: channel means and standard deviations, in [0, 1], for normalising input images:
 * (value / 255 - mean) / deviation. Batches are 8-bit; the device normalises them.
 */
#ifndef FORMATS_BASE_IMAGE_NORM_H
#define FORMATS_BASE_IMAGE_NORM_H

enum image_norm_kind {
    IMAGE_NORM_CLIP,     /* the default of training */
    IMAGE_NORM_IMAGENET, /* the papers' zero-shot evaluation, except on CIFAR */
    IMAGE_NORM_CIFAR10,
    IMAGE_NORM_CIFAR100,
    IMAGE_NORM_NONE,      /* pixels stay in [0, 1]: EMC2 */
    IMAGE_NORM_INCEPTION, /* SigLIP */
    IMAGE_NORM_COUNT,
};

struct image_norm {
    const char *name;
    float mean[3], deviation[3]; /* red, green, blue */
};

/* In the order of the kinds. */
static const struct image_norm IMAGE_NORMS[IMAGE_NORM_COUNT] = {
    {"clip", {0.48145466f, 0.4578275f, 0.40821073f}, {0.26862954f, 0.26130258f, 0.27577711f}},
    {"imagenet", {0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}},
    {"cifar10", {0.4914f, 0.4822f, 0.4465f}, {0.2023f, 0.1994f, 0.2010f}},
    {"cifar100", {0.5071f, 0.4867f, 0.4408f}, {0.2675f, 0.2565f, 0.2761f}},
    {"none", {0.0f, 0.0f, 0.0f}, {1.0f, 1.0f, 1.0f}},
    {"inception", {0.5f, 0.5f, 0.5f}, {0.5f, 0.5f, 0.5f}},
};

#endif
