/*
 * make_scenes: renders little scenes with compositional captions into a WebDataset tar:
 *
 *     make_scenes SPLIT COUNT SEED SIZE OUT.tar          SPLIT: train, val, two-train or two-val
 *
 * A scene is one shape of one colour, solid or hollow, on a patterned background: 1,680
 * combinations, each with one caption. A fixed permutation keeps 256 of them for `val`, so that a
 * held-out caption is never met in training; `val` goes through its combinations once and again.
 * Place, size, turn and shades differ from render to render. The same arguments give the same
 * bytes.
 *
 * With two- a scene has two shapes side by side: 470,400 combinations, of which `two-val` has
 * 4,096. SEED 1 has the first COUNT of them, 2 the next, and so on, so that sets of one COUNT and
 * different seeds share no caption.
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
    HELD_OUT_TWO = 4096,
    COLOURS = 8,
    SHAPES = 5,
    FILLS = 2,
    PATTERNS = 3,
    MAX_SIDE = 256,
    QUALITY = 90
};
/* The background takes one of the seven other colours. */
enum { COMBINATIONS = COLOURS * (COLOURS - 1) * SHAPES * FILLS * PATTERNS };
/* Either object has one of the seven that the background does not have. */
enum { COMBINATIONS_TWO = COMBINATIONS * (COLOURS - 1) * SHAPES * FILLS };

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

struct object {
    int colour, shape, fill;
    double x, y, radius;
    double turn_cos, turn_sin;
    int shade[3];
};

struct scene {
    struct object objects[2];
    int object_count;
    int background, pattern;
    double period;
    double slant_cos, slant_sin;
    int shade[3]; /* of the background */
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

static bool is_on(const struct object *o, double x, double y) {
    const double dx = (x - o->x) / o->radius;
    const double dy = (y - o->y) / o->radius;
    if (dx * dx + dy * dy >= MAX_REACH_SQUARED) {
        return false;
    }
    const double d =
        edge(o->shape, dx * o->turn_cos + dy * o->turn_sin, dy * o->turn_cos - dx * o->turn_sin);
    return d < 0.0 && (o->fill == 0 || d > -0.28);
}

/* Adds the colour at (x, y) to sum. */
static void add_colour(double sum[3], const struct scene *s, double x, double y) {
    for (int k = 0; k < s->object_count; k++) {
        if (is_on(&s->objects[k], x, y)) {
            for (int c = 0; c < 3; c++) {
                sum[c] += s->objects[k].shade[c];
            }
            return;
        }
    }
    const bool mark = on_background_mark(s, x, y);
    for (int c = 0; c < 3; c++) {
        /* Marks are the background's colour, moved towards grey. */
        sum[c] += mark ? 0.45 * s->shade[c] + 0.55 * 128 : s->shade[c];
    }
}

static void render(uint8_t *pixels, int side, const struct scene *s) {
    enum { GRID = 3 };
    for (int i = 0; i < side * side; i++) {
        double sum[3] = {0};
        for (int k = 0; k < GRID * GRID; k++) {
            add_colour(sum, s, (i % side + (k % GRID + 0.5) / GRID) / side,
                       (i / side + (k / GRID + 0.5) / GRID) / side);
        }
        for (int c = 0; c < 3; c++) {
            pixels[i * 3 + c] = (uint8_t)(sum[c] / (GRID * GRID) + 0.5);
        }
    }
}

static double between(struct rng *r, double low, double high) {
    return low + (high - low) * rng_uniform(r);
}

static void
draw_place(struct object *o, const struct object *least, const struct object *most, struct rng *r) {
    o->radius = between(r, least->radius, most->radius);
    o->x = between(r, least->x, most->x);
    o->y = between(r, least->y, most->y);
    const double turn = between(r, -0.3, 0.3);
    o->turn_cos = cos(turn);
    o->turn_sin = sin(turn);
}

static void draw_shade(int shade[3], int c, int colour, struct rng *r) {
    const double value = colours[colour].rgb[c] + between(r, -14.0, 14.0);
    shade[c] = (int)fmin(fmax(value, 0.0), 255.0);
}

/* What the combination has of an object; returns the rest of it. */
static int take_object(struct object *o, int background, int combination) {
    o->colour = (background + 1 + combination % (COLOURS - 1)) % COLOURS;
    combination /= COLOURS - 1;
    o->shape = combination % SHAPES;
    combination /= SHAPES;
    o->fill = combination % FILLS;
    return combination / FILLS;
}

static struct scene draw_scene(int combination, bool two, struct rng *r) {
    static const struct object alone[2] = {{.radius = 0.24, .x = 0.42, .y = 0.42},
                                           {.radius = 0.34, .x = 0.58, .y = 0.58}};
    static const struct object left[2] = {{.radius = 0.15, .x = 0.22, .y = 0.35},
                                          {.radius = 0.2, .x = 0.28, .y = 0.65}};
    static const struct object right[2] = {{.radius = 0.15, .x = 0.72, .y = 0.35},
                                           {.radius = 0.2, .x = 0.78, .y = 0.65}};
    struct scene s = {.object_count = two ? 2 : 1};
    struct object *first = &s.objects[0];
    if (two) {
        s.background = combination % COLOURS;
        combination = take_object(first, s.background, combination / COLOURS);
        s.pattern = take_object(&s.objects[1], s.background, combination);
        draw_place(&s.objects[1], &right[0], &right[1], r);
    } else {
        first->colour = combination % COLOURS;
        combination /= COLOURS;
        s.background = (first->colour + 1 + combination % (COLOURS - 1)) % COLOURS;
        combination /= COLOURS - 1;
        first->shape = combination % SHAPES;
        combination /= SHAPES;
        first->fill = combination % FILLS;
        s.pattern = combination / FILLS;
    }
    draw_place(first, two ? &left[0] : &alone[0], two ? &left[1] : &alone[1], r);
    s.period = between(r, 0.16, 0.24);
    const double slant = between(r, 0.0, 3.14159265358979);
    s.slant_cos = cos(slant);
    s.slant_sin = sin(slant);
    for (int c = 0; c < 3; c++) {
        for (int k = 0; k < s.object_count; k++) {
            draw_shade(s.objects[k].shade, c, s.objects[k].colour, r);
        }
        draw_shade(s.shade, c, s.background, r);
    }
    return s;
}

static void describe(char *text, size_t size_bytes, const struct scene *s) {
    static const char *const joined[2] = {"", " left of "};
    size_t used = 0;
    for (int k = 0; k < s->object_count; k++) {
        const struct object *o = &s->objects[k];
        used += (size_t)snprintf(text + used, size_bytes - used, "%sa %s %s %s", joined[k],
                                 fills[o->fill], colours[o->colour].name, shapes[o->shape]);
    }
    (void)snprintf(text + used, size_bytes - used, " on a %s %s background", patterns[s->pattern],
                   colours[s->background].name);
}

static bool
write_sample(FILE *out, int number, int combination, bool two, int side, uint64_t seed) {
    static uint8_t pixels[MAX_SIDE * MAX_SIDE * 3];
    struct rng r;
    struct error err = {0};
    struct byte_buffer jpeg;
    char name[32];
    char caption[128];
    rng_init(&r, seed, RNG_INIT, (uint64_t)number, (uint64_t)combination);
    const struct scene s = draw_scene(combination, two, &r);
    render(pixels, side, &s);
    const struct image_view view = {
        .data = pixels, .width_px = side, .height_px = side, .stride_bytes = (size_t)side * 3};
    byte_buffer_init(&jpeg, 0);
    bool ok = image_encode_jpeg(&jpeg, &view, QUALITY, &err) == STATUS_OK;
    describe(caption, sizeof caption, &s);
    (void)snprintf(name, sizeof name, "%09d.jpg", number);
    ok = ok && tar_write_file(out, name, jpeg.data, jpeg.size_bytes);
    (void)snprintf(name, sizeof name, "%09d.txt", number);
    ok = ok && tar_write_file(out, name, caption, strlen(caption));
    byte_buffer_fini(&jpeg);
    return ok;
}

int main(int argc, char **argv) {
    static const char *const splits[] = {"train", "val", "two-train", "two-val", NULL};
    int split = 0;
    while (argc == 6 && splits[split] != NULL && strcmp(argv[1], splits[split]) != 0) {
        split++;
    }
    if (argc != 6 || splits[split] == NULL) {
        (void)fprintf(stderr,
                      "usage: make_scenes train|val|two-train|two-val COUNT SEED SIZE OUT.tar\n");
        return 64;
    }
    const bool val = split % 2 == 1;
    const bool two = split >= 2;
    const int count = atoi(argv[2]);
    const uint64_t seed = strtoull(argv[3], NULL, 10);
    const int side = atoi(argv[4]);
    FILE *out = side >= 8 && side <= MAX_SIDE && count > 0 ? fopen(argv[5], "wb") : NULL;
    if (out == NULL) {
        (void)fprintf(stderr, "make_scenes: cannot make %s\n", argv[5]);
        return 73;
    }
    const int all = two ? COMBINATIONS_TWO : COMBINATIONS;
    const int held_out = two ? HELD_OUT_TWO : HELD_OUT;
    const int places = val ? held_out : all - held_out;
    const uint64_t first = two ? (seed - 1) * (uint64_t)count : 0;
    struct permutation p;
    permutation_init(&p, (uint64_t)all, 2025, 0);
    bool ok = true;
    for (int i = 0; ok && i < count; i++) {
        const uint64_t place =
            (first + (uint64_t)i) % (uint64_t)places + (val ? 0 : (uint64_t)held_out);
        ok = write_sample(out, i, (int)permutation_at(&p, place), two, side,
                          seed + (val ? 1000003 : 0));
    }
    ok = ok && tar_write_end(out);
    ok = fclose(out) == 0 && ok;
    if (!ok) {
        (void)fprintf(stderr, "make_scenes: cannot write %s\n", argv[5]);
    }
    return ok ? 0 : 74;
}
