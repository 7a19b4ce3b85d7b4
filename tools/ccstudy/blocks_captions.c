/*
 * blocks_captions: captions of a dataset as labelled points: words become numbers, a topic's own
 * word becomes the label.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/dataset.h"
#include "tools/ccstudy/blocks_data.h"

enum {
    MAX_TOPICS = 256,
    WORD_BYTES = 32, /* longer words are cut */
    LEAST_CAPTIONS = 5,
    MAX_DIM = 4096,
    MAX_NUMBERS = 1 << 28
};

struct word {
    char text[WORD_BYTES];
    int64_t caption;
};

struct captions {
    char topics[MAX_TOPICS][WORD_BYTES];
    int32_t topic_count;
    struct word *words; /* of captions that were taken */
    int64_t word_count, word_capacity;
    int32_t *topic_of; /* (count) */
    bool *is_test;
    int64_t count, capacity;
};

static enum status no_memory(struct error *err) {
    return error_set(err, STATUS_NOMEM, "no memory for the captions");
}

/* The next word of at least two letters in lower case; false at the end of the text. */
static bool next_word(char out[WORD_BYTES], const char **at, const char *end) {
    for (;;) {
        size_t length = 0;
        while (*at < end && !isalpha((unsigned char)**at)) {
            (*at)++;
        }
        if (*at == end) {
            return false;
        }
        for (; *at < end && isalpha((unsigned char)**at); (*at)++) {
            if (length + 1 < WORD_BYTES) {
                out[length++] = (char)tolower((unsigned char)**at);
            }
        }
        out[length] = '\0';
        if (length > 1) {
            return true;
        }
    }
}

static enum status take_topics(struct captions *c, const char *list, struct error *err) {
    const char *end = list + strlen(list);
    while (c->topic_count < MAX_TOPICS && next_word(c->topics[c->topic_count], &list, end)) {
        c->topic_count++;
    }
    return c->topic_count >= 2 && list == end
               ? STATUS_OK
               : error_set(err, STATUS_USAGE, "--topics: expected 2 to %d words, found %d%s",
                           MAX_TOPICS, (int)c->topic_count, list == end ? "" : " and more");
}

/* The topic that a word names, itself or by its plural in s; -1: none. */
static int32_t topic_named(const struct captions *c, const char *word) {
    for (int32_t t = 0; t < c->topic_count; t++) {
        const size_t length = strlen(c->topics[t]);
        if (strncmp(word, c->topics[t], length) == 0 &&
            (word[length] == '\0' || strcmp(word + length, "s") == 0)) {
            return t;
        }
    }
    return -1;
}

static enum status reserve(struct captions *c, struct error *err) {
    enum { MOST_WORDS = 1 << 12 }; /* of a caption; more are left out */
    if (c->word_count + MOST_WORDS > c->word_capacity) {
        const int64_t capacity = 2 * c->word_capacity + MOST_WORDS;
        struct word *words = realloc(c->words, (size_t)capacity * sizeof *words);
        if (words == NULL) {
            return no_memory(err);
        }
        c->words = words;
        c->word_capacity = capacity;
    }
    if (c->count == c->capacity) {
        const int64_t capacity = 2 * c->capacity + 1024;
        int32_t *topics = realloc(c->topic_of, (size_t)capacity * sizeof *topics);
        c->topic_of = topics != NULL ? topics : c->topic_of;
        bool *tests = topics != NULL ? realloc(c->is_test, (size_t)capacity) : NULL;
        c->is_test = tests != NULL ? tests : c->is_test;
        if (tests == NULL) {
            return no_memory(err);
        }
        c->capacity = capacity;
    }
    return c->count < BLOCKS_MAX_POINTS
               ? STATUS_OK
               : error_set(err, STATUS_LIMIT, "more than %d captions", BLOCKS_MAX_POINTS);
}

/* Takes a caption with exactly one topic, and its other words. */
static enum status
add_caption(struct captions *c, const struct shard_text *text, bool is_test, struct error *err) {
    const char *at = text->data;
    const char *end = at + text->size_bytes;
    int32_t topic = -1;
    bool several = false;
    TRY(reserve(c, err));
    const int64_t begin = c->word_count;
    while (c->word_count < c->word_capacity) {
        struct word *w = &c->words[c->word_count];
        if (!next_word(w->text, &at, end)) {
            break;
        }
        const int32_t named = topic_named(c, w->text);
        several |= named >= 0 && topic >= 0 && named != topic;
        topic = named >= 0 ? named : topic;
        w->caption = c->count;
        c->word_count += named < 0;
    }
    if (topic < 0 || several) {
        c->word_count = begin;
        return STATUS_OK;
    }
    c->topic_of[c->count] = topic;
    c->is_test[c->count++] = is_test;
    return STATUS_OK;
}

static enum status read_captions(struct captions *c, const char *directory, struct error *err) {
    struct dataset *d = NULL;
    struct caption_reader *reader = NULL;
    enum status s = dataset_open(&d, directory, NULL, err);
    if (s == STATUS_OK) {
        s = caption_reader_create(&reader, d, err);
    }
    for (uint64_t i = 0; s == STATUS_OK && i < dataset_sample_count(d); i++) {
        struct dataset_sample sample;
        struct shard_text text;
        s = dataset_sample_at(d, i, &sample, err);
        for (uint32_t k = 0; s == STATUS_OK && k < sample.text_count; k++) {
            s = caption_reader_get(reader, &sample, k, &text, err);
            if (s == STATUS_OK) {
                s = add_caption(c, &text, i % BLOCKS_TEST_SHARE == BLOCKS_TEST_SHARE - 1, err);
            }
        }
    }
    caption_reader_destroy(reader);
    dataset_close(d);
    return s;
}

/* Numbers the topics that have enough captions in both parts, and takes the captions of the others
 * out. Returns USAGE if fewer than two are left. */
static enum status
drop_rare(struct captions *c, struct blocks_data *out, int64_t least, struct error *err) {
    int64_t sizes[2][MAX_TOPICS] = {{0}};
    int32_t label[MAX_TOPICS];
    for (int64_t i = 0; i < c->count; i++) {
        sizes[c->is_test[i]][c->topic_of[i]]++;
    }
    for (int32_t t = 0; t < c->topic_count; t++) {
        const bool enough = sizes[0][t] >= least && sizes[1][t] >= least;
        label[t] = enough ? out->classes++ : -1;
    }
    for (int64_t i = 0; i < c->count; i++) {
        c->topic_of[i] = label[c->topic_of[i]];
    }
    return out->classes >= 2
               ? STATUS_OK
               : error_set(err, STATUS_USAGE,
                           "%d of the --topics have about %lld captions or more; blocks need two "
                           "such topics",
                           (int)out->classes, (long long)(least * BLOCKS_TEST_SHARE));
}

static int by_text(const void *a, const void *b) {
    const struct word *x = a;
    const struct word *y = b;
    const int order = strcmp(x->text, y->text);
    return order != 0 ? order : (x->caption > y->caption) - (x->caption < y->caption);
}

/* The end of the words with the text of words[i]; *count: in so many captions. */
static int64_t same_words(const struct captions *c, int64_t i, int64_t *count) {
    int64_t end = i;
    *count = 0;
    for (; end < c->word_count && strcmp(c->words[end].text, c->words[i].text) == 0; end++) {
        *count += end == i || c->words[end].caption != c->words[end - 1].caption;
    }
    return end;
}

static int64_t count_columns(const struct captions *c, int64_t least) {
    int64_t columns = 0;
    int64_t count;
    for (int64_t i = 0; i < c->word_count;) {
        i = same_words(c, i, &count);
        columns += count >= least;
    }
    return columns;
}

static void scale_rows(struct blocks_points *p, int64_t dim) {
    for (int64_t i = 0; i < p->count; i++) {
        float *row = p->rows + i * dim;
        double squares = 0.0;
        for (int64_t k = 0; k < dim; k++) {
            squares += (double)row[k] * (double)row[k];
        }
        const float scale = squares > 0.0 ? (float)sqrt((double)dim / squares) : 0.0f;
        for (int64_t k = 0; k < dim; k++) {
            row[k] *= scale;
        }
    }
}

/* A row for every caption that has a label: row_of[caption], -1 without. */
static enum status fill_rows(struct blocks_points *p,
                             struct blocks_data *out,
                             struct captions *c,
                             const int64_t *row_of,
                             struct error *err) {
    int64_t least = LEAST_CAPTIONS;
    qsort(c->words, (size_t)c->word_count, sizeof *c->words, by_text);
    while ((out->dim = count_columns(c, least)) > MAX_DIM) {
        least++;
    }
    if (out->dim == 0 || p->count > MAX_NUMBERS / out->dim) {
        return error_set(err, STATUS_LIMIT, "%lld captions with %lld words are not 1 to %d numbers",
                         (long long)p->count, (long long)out->dim, MAX_NUMBERS);
    }
    p->rows = calloc((size_t)p->count, (size_t)out->dim * sizeof *p->rows);
    if (p->rows == NULL) {
        return no_memory(err);
    }
    int64_t column = 0;
    int64_t count;
    int64_t end;
    for (int64_t i = 0; i < c->word_count; i = end) {
        end = same_words(c, i, &count);
        for (int64_t w = i; w < end && count >= least; w++) {
            p->rows[row_of[c->words[w].caption] * out->dim + column] =
                (float)log((double)p->count / (double)count);
        }
        column += count >= least;
    }
    scale_rows(p, out->dim);
    return STATUS_OK;
}

/* Leaves out captions without a label, and their words. */
static enum status make_points(struct blocks_points *p,
                               struct blocks_data *out,
                               struct captions *c,
                               struct error *err) {
    int64_t *row_of = calloc((size_t)c->count, sizeof *row_of);
    p->labels = calloc((size_t)c->count, sizeof *p->labels);
    p->is_test = calloc((size_t)c->count, sizeof *p->is_test);
    enum status s =
        row_of != NULL && p->labels != NULL && p->is_test != NULL ? STATUS_OK : no_memory(err);
    for (int64_t i = 0; i < c->count && s == STATUS_OK; i++) {
        row_of[i] = c->topic_of[i] < 0 ? -1 : p->count;
        p->labels[p->count] = c->topic_of[i];
        p->is_test[p->count] = c->is_test[i];
        p->count += c->topic_of[i] >= 0;
    }
    int64_t kept = 0;
    for (int64_t w = 0; w < c->word_count && s == STATUS_OK; w++) {
        c->words[kept] = c->words[w];
        kept += row_of[c->words[w].caption] >= 0;
    }
    c->word_count = kept;
    if (s == STATUS_OK) {
        s = fill_rows(p, out, c, row_of, err);
    }
    free(row_of);
    return s;
}

enum status blocks_data_read_captions(struct blocks_data *out,
                                      const char *directory,
                                      const char *topics,
                                      int64_t least,
                                      struct error *err) {
    struct blocks_points points = {0};
    struct captions *c = calloc(1, sizeof *c);
    memset(out, 0, sizeof *out);
    enum status s = c != NULL ? take_topics(c, topics, err) : no_memory(err);
    if (s == STATUS_OK) {
        s = read_captions(c, directory, err);
    }
    if (s == STATUS_OK) {
        s = drop_rare(c, out, least, err);
    }
    if (s == STATUS_OK) {
        s = make_points(&points, out, c, err);
    }
    if (s == STATUS_OK) {
        s = blocks_data_divide(out, &points, least, err);
    }
    blocks_points_fini(&points);
    if (c != NULL) {
        free(c->words);
        free(c->topic_of);
        free(c->is_test);
    }
    free(c);
    if (s != STATUS_OK) {
        blocks_data_fini(out);
    }
    return s;
}
