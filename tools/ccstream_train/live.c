#include "tools/ccstream_train/ccstream_train_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/clock.h"
#include "formats/base/json_writer.h"

/* Any thread may warn. */
static void write_line(void *cookie, enum log_level level, const char *text) {
    struct live *l = cookie;
    pthread_mutex_lock(&l->terminal);
    cli_progress_clear(&l->progress);
    l->out.write(l->out.cookie, level, text);
    pthread_mutex_unlock(&l->terminal);
}

void live_init(struct live *l, enum live_mode mode, struct log_sink out, const char *run) {
    *l = (struct live){.run = run, .recall = -1, .out = out};
    pthread_mutex_init(&l->terminal, NULL);
    const bool says_nothing = out.max_level < LOG_LEVEL_INFO;
    cli_progress_init(&l->progress, "steps", says_nothing);
    l->progress.in_place |= mode == LIVE_BAR;
    l->mode = says_nothing           ? LIVE_NONE
              : mode != LIVE_AUTO    ? mode
              : l->progress.in_place ? LIVE_BAR
                                     : LIVE_PLAIN;
    l->progress.active = l->mode == LIVE_BAR;
    l->log = (struct log_sink){.write = write_line,
                               .cookie = l,
                               .max_level = mode == LIVE_JSON && !says_nothing ? LOG_LEVEL_WARN
                                                                               : out.max_level};
    l->started_ns = clock_now_ns();
}

void live_begin(struct live *l, uint64_t step, uint64_t steps_per_epoch) {
    l->progress.begun = step;
    l->progress.started_ns = clock_now_ns();
    l->steps_per_epoch = steps_per_epoch;
    l->first_ns = l->progress.started_ns;
    l->logged_ns = l->first_ns;
}

void live_end(struct live *l) {
    pthread_mutex_lock(&l->terminal);
    cli_progress_clear(&l->progress);
    pthread_mutex_unlock(&l->terminal);
}

void live_fini(struct live *l) {
    pthread_mutex_destroy(&l->terminal);
}

/* Prints it once, after ten steps or ten seconds of steps. */
static void say_estimate(struct live *l, uint64_t step, uint64_t total_steps) {
    static const double demo_s = 24 * 3600;
    const double s = (double)(clock_now_ns() - l->first_ns) / 1e9;
    if (l->estimated || step == total_steps || (l->steps < 10 && s < 10)) {
        return;
    }
    l->estimated = true;
    const double rest_s = s / (double)l->steps * (double)(total_steps - step);
    log_write(&l->log, LOG_LEVEL_INFO, "about %s per epoch, %s remaining%s",
              cli_format_seconds(s / (double)l->steps * (double)l->steps_per_epoch),
              cli_format_seconds(rest_s),
              l->on_cpu && rest_s > demo_s
                  ? "; this is a long run for a CPU: --preset cpu-demo trains a small model"
                  : "");
}

static void describe(char *out, size_t size, const struct live *l, const struct step_report *r) {
    int n = snprintf(out, size, "epoch %" PRIu64 "  %s %.4f  %s  stall %.0f %%", r->epoch + 1,
                     isnan(r->global_loss) ? "loss" : "global loss",
                     isnan(r->global_loss) ? r->loss : r->global_loss,
                     cli_format_rate(l->mean_rate, "pairs"), 100.0 * l->mean_stall);
    if (l->recall >= 0) {
        n += snprintf(out + n, size - (size_t)n, "  R@1 %.1f %%", l->recall);
    }
    if (r->slowest_pairs_per_s > 0.0) {
        (void)snprintf(out + n, size - (size_t)n, "  rank %u: %s  wait %.0f %%",
                       (unsigned)r->slowest_rank, cli_format_rate(r->slowest_pairs_per_s, "pairs"),
                       100.0 * r->wait_fraction);
    }
}

static void write_json(const struct live *l, const struct step_report *r, uint64_t total_steps) {
    const double s = (double)(clock_now_ns() - l->progress.started_ns) / 1e9;
    const uint64_t own = r->step > l->progress.begun ? r->step - l->progress.begun : 0;
    struct json_writer w;
    json_writer_init(&w, 0);
    json_open_object(&w, NULL);
    json_u64(&w, "step", r->step);
    json_u64(&w, "total_steps", total_steps);
    json_u64(&w, "epoch", r->epoch);
    json_double(&w, "loss", r->loss);
    if (!isnan(r->global_loss)) {
        json_double(&w, "global_loss", r->global_loss);
    }
    json_double(&w, "pairs_per_s", l->mean_rate);
    json_double(&w, "stall_fraction", l->mean_stall);
    if (own > 0) {
        json_double(&w, "seconds_left", s / (double)own * (double)(total_steps - r->step));
    }
    if (l->recall >= 0) {
        json_double(&w, "mean_r1", l->recall);
    }
    json_close_object(&w);
    json_newline(&w);
    if (json_writer_status(&w, NULL) == STATUS_OK) {
        (void)fwrite(w.out.data, 1, w.out.size_bytes, stderr);
    }
    json_writer_fini(&w);
}

void live_step(void *cookie, const struct step_report *r, uint64_t total_steps) {
    static const int64_t second_ns = INT64_C(1000) * 1000 * 1000;
    struct live *l = cookie;
    l->steps++;
    l->loss = r->loss;
    l->global_loss = r->global_loss;
    const double old = l->steps == 1 ? 0.0 : 0.95;
    l->mean_rate = old * l->mean_rate + (1.0 - old) * r->pairs_per_s;
    l->mean_stall = old * l->mean_stall + (1.0 - old) * r->stall_fraction;
    char text[256];
    describe(text, sizeof text, l, r);
    pthread_mutex_lock(&l->terminal);
    cli_progress_update(&l->progress, r->step, total_steps, 0, text);
    pthread_mutex_unlock(&l->terminal);
    say_estimate(l, r->step, total_steps);
    const int64_t now_ns = clock_now_ns();
    const int64_t every_ns = l->mode == LIVE_JSON ? second_ns : 10 * second_ns;
    if (now_ns - l->logged_ns <= every_ns && r->step != total_steps) {
        return;
    }
    l->logged_ns = now_ns;
    if (l->mode == LIVE_JSON) {
        write_json(l, r, total_steps);
    } else if (l->mode == LIVE_PLAIN) {
        log_write(&l->log, LOG_LEVEL_INFO, "step %" PRIu64 "/%" PRIu64 "  %s  grad %.3g  lr %.3g",
                  r->step, total_steps, text, r->grad_norm, r->lr);
    }
}

void live_retrieval(void *cookie, uint64_t step, const struct retrieval_result *r) {
    struct live *l = cookie;
    l->recall = r->value[RETRIEVAL_MEAN][RETRIEVAL_R1];
    log_write(&l->log, LOG_LEVEL_INFO,
              "step %" PRIu64 "  image to text R@1 %.2f %%, text to image R@1 %.2f %%, mean %.2f %%"
              " (%s, %s)",
              step, r->value[RETRIEVAL_I2T][RETRIEVAL_R1], r->value[RETRIEVAL_T2I][RETRIEVAL_R1],
              r->value[RETRIEVAL_MEAN][RETRIEVAL_R1], cli_format_counted(r->images, "image"),
              cli_format_counted(r->texts, "text"));
}

void live_zeroshot(void *cookie, uint64_t step, const struct classify_result *r) {
    struct live *l = cookie;
    l->zeroshot = *r;
    l->zeroshot.class_top1 = NULL;
    l->zeroshot.class_images = NULL;
    log_write(&l->log, LOG_LEVEL_INFO,
              "step %" PRIu64 "  zero-shot top-1 %.2f %%, top-5 %.2f %%, mean over classes %.2f %%"
              " (%" PRIu64 " images, %d classes)",
              step, r->top1, r->top5, r->per_class, r->images, (int)r->class_count);
}

void live_features(void *cookie, uint64_t step, const struct features_result *r) {
    struct live *l = cookie;
    l->features = *r;
    log_write(&l->log, LOG_LEVEL_INFO,
              "step %" PRIu64 "  nearest neighbour %.2f %%, ten nearest %.2f %%, k-NN %.2f %%%s"
              " (%" PRIu64 " images, %d classes)",
              step, r->neighbours[FEATURES_NN1], r->neighbours[FEATURES_NN10],
              r->neighbours[FEATURES_KNN],
              isnan(r->probe) ? "" : cli_format(", linear probe %.2f %%", r->probe), r->images,
              (int)r->class_count);
}
