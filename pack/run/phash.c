/*
 * The DCT of the reduced image as two products with a matrix of cosines. Their fixed point has 20
 * fraction bits: 255 * 32^2 * 2^40 fits 59 bits, and a coefficient is right to 0.001 of a level.
 */
#include "pack/run/phash_internal.h"

#include <stdlib.h>
#include <string.h>

enum { SIDE = 32, KEPT = 8 };

/* cos(pi m / 64) * 2^20, rounded, for m from 0 to 32. */
static const int32_t quarter[] = {
    1048576, 1047313, 1043527, 1037227, 1028428, 1017151, 1003425, 987281, 968758, 947901, 924761,
    899394,  871859,  842224,  810560,  776944,  741455,  704181,  665210, 624636, 582558, 539076,
    494295,  448324,  401273,  353255,  304386,  254783,  204567,  153858, 102778, 51451,  0,
};

static int32_t cosine(int m) {
    m %= 4 * SIDE;
    m = m > 2 * SIDE ? 4 * SIDE - m : m;
    return m > SIDE ? -quarter[2 * SIDE - m] : quarter[m];
}

/* The lowest frequencies of the DCT-II, unnormalised: out[k][l] is the sum over y and x of
 * gray[y][x] * cos(pi (2 y + 1) k / 64) * cos(pi (2 x + 1) l / 64). */
static void transform(int64_t out[KEPT][KEPT], uint8_t gray[SIDE][SIDE]) {
    int32_t basis[KEPT][SIDE];
    for (int k = 0; k < KEPT; k++) {
        for (int n = 0; n < SIDE; n++) {
            basis[k][n] = cosine((2 * n + 1) * k);
        }
    }
    for (int k = 0; k < KEPT; k++) {
        int64_t columns[SIDE] = {0};
        for (int y = 0; y < SIDE; y++) {
            for (int x = 0; x < SIDE; x++) {
                columns[x] += (int64_t)basis[k][y] * gray[y][x];
            }
        }
        for (int l = 0; l < KEPT; l++) {
            out[k][l] = 0;
            for (int x = 0; x < SIDE; x++) {
                out[k][l] += columns[x] * basis[l][x];
            }
        }
    }
}

static int compare(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

enum status pack_phash(uint64_t *out,
                       const struct image_view *view,
                       const struct image_box *box,
                       struct resize_workspace *workspace,
                       struct error *err) {
    uint8_t rgb[SIDE][SIDE][3];
    uint8_t gray[SIDE][SIDE];
    int64_t frequencies[KEPT][KEPT];
    int64_t sorted[KEPT * KEPT];
    const struct image_view small = {&rgb[0][0][0], SIDE, SIDE, sizeof(rgb[0])};
    TRY(resize_image(&small, view, box, NULL, RESIZE_LANCZOS, false, workspace, err));
    for (int y = 0; y < SIDE; y++) {
        for (int x = 0; x < SIDE; x++) { /* Pillow's weights of ITU-R BT.601 */
            const uint8_t *p = rgb[y][x];
            gray[y][x] = (uint8_t)((19595 * p[0] + 38470 * p[1] + 7471 * p[2] + 0x8000) >> 16);
        }
    }
    transform(frequencies, gray);
    memcpy(sorted, frequencies, sizeof(sorted));
    qsort(sorted, KEPT * KEPT, sizeof(sorted[0]), compare);
    const int64_t two_medians = sorted[KEPT * KEPT / 2 - 1] + sorted[KEPT * KEPT / 2];
    *out = 0;
    for (int i = 0; i < KEPT * KEPT; i++) {
        *out = *out << 1 | (2 * frequencies[i / KEPT][i % KEPT] > two_medians);
    }
    return STATUS_OK;
}
