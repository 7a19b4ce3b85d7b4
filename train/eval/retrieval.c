/*
 * retrieval: every image and every caption of a dataset through the model, then ranks.
 */
#include "train/eval/retrieval.h"

#include "train/eval/embed.h"

enum status retrieval_evaluate(struct retrieval_result *out,
                               struct dual_encoder *model,
                               struct device *dev,
                               const char *dataset_dir,
                               const struct embed_options *opt,
                               struct error *err) {
    REQUIRE(out != NULL && opt != NULL);
    struct embed_options how = *opt;
    struct embeddings e;
    how.texts = true;
    TRY(embed_dataset(&e, &(struct embed_model){.pairs = model}, dev, dataset_dir, &how, err));
    const enum status s = retrieval_ranks(out, dev, e.images, e.images_count, e.texts,
                                          e.texts_count, e.owner, e.embed_dim, err);
    embeddings_fini(&e);
    return s;
}
