/*
 * loss_views: the (2B, 2B) similarities of two views, one anchor at a time, in the form that the
 * functions of one side of pairs expect: own pair first, then the views of other samples.
 */
#include "train/loss/loss_internal.h"

static int64_t partner_of(int64_t anchor, int64_t b) {
    return anchor < b ? anchor + b : anchor - b;
}

struct loss_side loss_take_view(struct loss *l, const struct loss_input *in, int64_t anchor) {
    const int64_t n = 2 * in->batch_count;
    const int64_t partner = partner_of(anchor, in->batch_count);
    const float *from = in->similarity + anchor * n;
    int64_t k = 0;
    l->view_row[0][k++] = from[partner];
    for (int64_t c = 0; c < n; c++) {
        if (c != anchor && c != partner) {
            l->view_row[0][k++] = from[c];
        }
    }
    for (int64_t c = 0; c < k; c++) {
        l->view_row[1][c] = 0.0f;
    }
    return (struct loss_side){.similarity = l->view_row[0],
                              .gradient = l->view_row[1],
                              .count = k,
                              .anchor_stride = 1,
                              .contrast_stride = 1,
                              .positives = 1};
}

void loss_put_view(const struct loss_side *row,
                   const struct loss_input *in,
                   struct loss_output *out,
                   int64_t anchor) {
    const int64_t n = 2 * in->batch_count;
    const int64_t partner = partner_of(anchor, in->batch_count);
    float *to = out->gradient + anchor * n;
    int64_t k = 0;
    to[partner] += row->gradient[k++];
    for (int64_t c = 0; c < n; c++) {
        if (c != anchor && c != partner) {
            to[c] += row->gradient[k++];
        }
    }
}
