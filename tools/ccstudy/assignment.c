/*
 * assignment: rows are matched one after the other, each along the shortest augmenting path from it
 * to a free column (Jonker and Volgenant, 1987). Potentials of rows and columns keep all reduced
 * costs at or above zero, so that Dijkstra's algorithm finds the path.
 */
#include "tools/ccstudy/assignment.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* Column n stands for "from where the path starts"; row n for "free". */
struct matching {
    size_t n;
    const double *cost;
    double *row_potential;    /* (n + 1) */
    double *column_potential; /* (n + 1) */
    double *shortest;         /* (n + 1): reduced length of the path to a column */
    size_t *row_of;           /* (n + 1): of a column */
    size_t *before;           /* (n + 1): the column before it on its path */
    bool *reached;            /* (n + 1): columns whose path is final */
};

/* From the column that was reached last, relaxes the paths to the others; returns the nearest of
 * them and moves all potentials so that its path has length zero. */
static size_t advance(struct matching *m, size_t last) {
    const size_t row = m->row_of[last];
    size_t nearest = m->n;
    double distance = HUGE_VAL;
    for (size_t c = 0; c < m->n; c++) {
        if (m->reached[c]) {
            continue;
        }
        const double reduced =
            m->cost[row * m->n + c] - m->row_potential[row] - m->column_potential[c];
        if (reduced < m->shortest[c]) {
            m->shortest[c] = reduced;
            m->before[c] = last;
        }
        if (m->shortest[c] < distance) {
            distance = m->shortest[c];
            nearest = c;
        }
    }
    for (size_t c = 0; c <= m->n; c++) {
        if (m->reached[c]) {
            m->row_potential[m->row_of[c]] += distance;
            m->column_potential[c] -= distance;
        } else {
            m->shortest[c] -= distance;
        }
    }
    return nearest;
}

static void match_row(struct matching *m, size_t row) {
    const size_t start = m->n;
    size_t at = start;
    m->row_of[start] = row;
    for (size_t c = 0; c <= m->n; c++) {
        m->shortest[c] = HUGE_VAL;
        m->reached[c] = false;
    }
    do {
        m->reached[at] = true;
        at = advance(m, at);
    } while (m->row_of[at] != m->n);
    while (at != start) {
        m->row_of[at] = m->row_of[m->before[at]];
        at = m->before[at];
    }
}

enum status assignment_solve(double *out, const double *cost, size_t n, struct error *err) {
    REQUIRE(out != NULL && cost != NULL && n >= 1);
    struct matching m = {.n = n, .cost = cost};
    m.row_potential = calloc(n + 1, sizeof *m.row_potential);
    m.column_potential = calloc(n + 1, sizeof *m.column_potential);
    m.shortest = calloc(n + 1, sizeof *m.shortest);
    m.row_of = calloc(n + 1, sizeof *m.row_of);
    m.before = calloc(n + 1, sizeof *m.before);
    m.reached = calloc(n + 1, sizeof *m.reached);
    enum status s = STATUS_OK;
    if (m.row_potential == NULL || m.column_potential == NULL || m.shortest == NULL ||
        m.row_of == NULL || m.before == NULL || m.reached == NULL) {
        s = error_set(err, STATUS_NOMEM, "no memory to match %zu points", n);
        goto fail;
    }
    for (size_t c = 0; c <= n; c++) {
        m.row_of[c] = n;
    }
    for (size_t row = 0; row < n; row++) {
        match_row(&m, row);
    }
    *out = 0.0;
    for (size_t c = 0; c < n; c++) {
        *out += cost[m.row_of[c] * n + c];
    }
fail:
    free(m.row_potential);
    free(m.column_potential);
    free(m.shortest);
    free(m.row_of);
    free(m.before);
    free(m.reached);
    return s;
}
