/*
 * make_scenes: renders little scenes with compositional captions into a WebDataset tar:
 *
 *     make_scenes SPLIT COUNT SEED SIZE OUT.tar          SPLIT: train or val
 *
 * A scene is one shape of one colour, solid or hollow, on a patterned background: 1,680
 * combinations, each with one caption. A fixed permutation keeps 256 of them for `val`, so that a
 * held-out caption is never met in training; `val` goes through its combinations once and again.
 * Place, size, turn and shades differ from render to render. The same arguments give the same
 * bytes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/image.h"
#include "formats/base/rng.h"
#include "formats/image/image_codec.h"
#include "tests/support/tar_write.h"

enum {
    HELD_OUT = 256,
    COLOURS = 8,
    SHAPES = 5,
    FILLS = 2,
    PATTERNS = 3,
    MAX_SIDE = 256,
    QUALITY = 90
};
/* The background takes one of the seven other colours. */
enum { COMBINATIONS = COLOURS * (COLOURS - 1) * SHAPES * FILLS * PATTERNS };

static const struct {
    const char *name;
    int rgb[3];
} colours[COLOURS] = {{"red", {220, 40, 40}},     {"green", {40, 180, 60}},
                      {"blue", {50, 80, 220}},    {"yellow", {240, 220, 50}},
                      {"purple", {150, 50, 180}}, {"orange", {250, 140, 30}},
                      {"black", {25, 25, 25}},    {"white", {245, 245, 245}}};
static const char *const shapes[SHAPES] = {"circle", "square", "triangle", "cross", "star"};
static const char *const fills[FILLS] = {"solid", "hollow"};
static const char *const patterns[PATTERNS] = {"plain", "striped", "dotted"};

struct scene {
    int colour, background, shape, fill, pattern;
    double x, y, radius;
    double turn_cos, turn_sin;
    double period;
    double slant_cos, slant_sin;
    int shade[2][3]; /* of object and background */
};

/* No shape reaches farther from its centre than the square root of this. */
static const double MAX_REACH_SQUARED = 1.5;

/* Distance from the edge of the unit shape, negative inside; good enough to draw with. */
static double edge(int shape, double x, double y) {
    if (shape == 0) {
        return hypot(x, y) - 1.0;
    }
    if (shape == 1) {
        return fmax(fabs(x), fabs(y)) - 0.85;
    }
    if (shape == 2) {
        return fmax(fmax(0.866 * x + 0.5 * y, -0.866 * x + 0.5 * y), -y) - 0.55;
    }
    if (shape == 3) {
        const double upright = fmax(fabs(x) - 0.33, fabs(y) - 1.0);
        const double level = fmax(fabs(x) - 1.0, fabs(y) - 0.33);
        return fmin(upright, level);
    }
    const double fifth = 2.0 * 3.14159265358979 / 5.0;
    const double a = fabs(remainder(atan2(x, y), fifth));
    /* Between a point at radius 1.1 and a dent at 0.45, the edge is a straight line. */
    const double tip = 1.1;
    const double dent = 0.45;
    const double r = hypot(x, y);
    const double px = r * cos(a) - tip;
    const double py = r * sin(a);
    const double qx = dent * cos(fifth / 2.0) - tip;
    const double qy = dent * sin(fifth / 2.0);
    return -(px * qy - py * qx) / hypot(qx, qy) * -1.0;
}

static bool on_background_mark(const struct scene *s, double x, double y) {
    if (s->pattern == 0) {
        return false;
    }
    const double u = x * s->slant_cos + y * s->slant_sin;
    if (s->pattern == 1) {
        return fabs(remainder(u, s->period)) < 0.22 * s->period;
    }
    const double v = y * s->slant_cos - x * s->slant_sin;
    return hypot(remainder(u, s->period), remainder(v, s->period)) < 0.25 * s->period;
}

/* At (x, y), which is (dx, dy) from the centre of the object in units of its radius: 0 object,
 * 1 background, 2 mark on the background. */
static int what_is_at(const struct scene *s, double x, double y, double dx, double dy) {
    if (dx * dx + dy * dy < MAX_REACH_SQUARED) {
        const double d = edge(s->shape, dx * s->turn_cos + dy * s->turn_sin,
                              dy * s->turn_cos - dx * s->turn_sin);
        if (d < 0.0 && (s->fill == 0 || d > -0.28)) {
            return 0;
        }
    }
    return on_background_mark(s, x, y) ? 2 : 1;
}

static void render(uint8_t *pixels, int side, const struct scene *s) {
    enum { GRID = 3 };
    static double at[MAX_SIDE * GRID], dx[MAX_SIDE * GRID], dy[MAX_SIDE * GRID];
    for (int i = 0; i < side * GRID; i++) {
        at[i] = (i / GRID + (i % GRID + 0.5) / GRID) / side;
        dx[i] = (at[i] - s->x) / s->radius;
        dy[i] = (at[i] - s->y) / s->radius;
    }
    for (int i = 0; i < side * side; i++) {
        double sum[3] = {0};
        for (int k = 0; k < GRID * GRID; k++) {
            const int column = i % side * GRID + k % GRID;
            const int row = i / side * GRID + k / GRID;
            const int what = what_is_at(s, at[column], at[row], dx[column], dy[row]);
            for (int c = 0; c < 3; c++) {
                const int base = s->shade[what == 0 ? 0 : 1][c];
                /* Marks are the background's colour, moved towards grey. */
                sum[c] += what == 2 ? 0.45 * base + 0.55 * 128 : base;
            }
        }
        for (int c = 0; c < 3; c++) {
            pixels[i * 3 + c] = (uint8_t)(sum[c] / (GRID * GRID) + 0.5);
        }
    }
}

static double between(struct rng *r, double low, double high) {
    return low + (high - low) * rng_uniform(r);
}

static struct scene draw_scene(int combination, struct rng *r) {
    struct scene s = {0};
    s.colour = combination % COLOURS;
    combination /= COLOURS;
    s.background = (s.colour + 1 + combination % (COLOURS - 1)) % COLOURS;
    combination /= COLOURS - 1;
    s.shape = combination % SHAPES;
    combination /= SHAPES;
    s.fill = combination % FILLS;
    s.pattern = combination / FILLS;
    s.radius = between(r, 0.24, 0.34);
    s.x = between(r, 0.42, 0.58);
    s.y = between(r, 0.42, 0.58);
    const double turn = between(r, -0.3, 0.3);
    s.turn_cos = cos(turn);
    s.turn_sin = sin(turn);
    s.period = between(r, 0.16, 0.24);
    const double slant = between(r, 0.0, 3.14159265358979);
    s.slant_cos = cos(slant);
    s.slant_sin = sin(slant);
    for (int c = 0; c < 3; c++) {
        const int ids[2] = {s.colour, s.background};
        for (int k = 0; k < 2; k++) {
            const double shade = colours[ids[k]].rgb[c] + between(r, -14.0, 14.0);
            s.shade[k][c] = (int)fmin(fmax(shade, 0.0), 255.0);
        }
    }
    return s;
}

static bool write_sample(FILE *out, int number, int combination, int side, uint64_t seed) {
    static uint8_t pixels[MAX_SIDE * MAX_SIDE * 3];
    struct rng r;
    struct error err = {0};
    struct byte_buffer jpeg;
    char name[32];
    char caption[128];
    rng_init(&r, seed, RNG_INIT, (uint64_t)number, (uint64_t)combination);
    const struct scene s = draw_scene(combination, &r);
    render(pixels, side, &s);
    const struct image_view view = {
        .data = pixels, .width_px = side, .height_px = side, .stride_bytes = (size_t)side * 3};
    byte_buffer_init(&jpeg, 0);
    bool ok = image_encode_jpeg(&jpeg, &view, QUALITY, &err) == STATUS_OK;
    const int size = snprintf(caption, sizeof caption, "a %s %s %s on a %s %s background",
                              fills[s.fill], colours[s.colour].name, shapes[s.shape],
                              patterns[s.pattern], colours[s.background].name);
    (void)snprintf(name, sizeof name, "%09d.jpg", number);
    ok = ok && tar_write_file(out, name, jpeg.data, jpeg.size_bytes);
    (void)snprintf(name, sizeof name, "%09d.txt", number);
    ok = ok && tar_write_file(out, name, caption, (size_t)size);
    byte_buffer_fini(&jpeg);
    return ok;
}

int main(int argc, char **argv) {
    if (argc != 6 || (strcmp(argv[1], "train") != 0 && strcmp(argv[1], "val") != 0)) {
        (void)fprintf(stderr, "usage: make_scenes train|val COUNT SEED SIZE OUT.tar\n");
        return 64;
    }
    const bool val = strcmp(argv[1], "val") == 0;
    const int count = atoi(argv[2]);
    const uint64_t seed = strtoull(argv[3], NULL, 10);
    const int side = atoi(argv[4]);
    FILE *out = side >= 8 && side <= MAX_SIDE && count > 0 ? fopen(argv[5], "wb") : NULL;
    if (out == NULL) {
        (void)fprintf(stderr, "make_scenes: cannot make %s\n", argv[5]);
        return 73;
    }
    struct permutation p;
    permutation_init(&p, COMBINATIONS, 2025, 0);
    bool ok = true;
    for (int i = 0; ok && i < count; i++) {
        const int place = val ? i % HELD_OUT : HELD_OUT + i % (COMBINATIONS - HELD_OUT);
        ok = write_sample(out, i, (int)permutation_at(&p, (uint64_t)place), side,
                          seed + (val ? 1000003 : 0));
    }
    ok = ok && tar_write_end(out);
    ok = fclose(out) == 0 && ok;
    if (!ok) {
        (void)fprintf(stderr, "make_scenes: cannot write %s\n", argv[5]);
    }
    return ok ? 0 : 74;
}
