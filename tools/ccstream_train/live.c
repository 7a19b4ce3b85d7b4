#include "tools/ccstream_train/live.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/clock.h"

/* Once, when ten steps or ten seconds of steps are done. */
static void say_estimate(struct live *l, uint64_t step, uint64_t total_steps) {
    static const double demo_s = 24 * 3600;
    const double s = (double)(clock_now_ns() - l->first_ns) / 1e9;
    if (l->estimated || step == total_steps || (l->steps < 10 && s < 10)) {
        return;
    }
    l->estimated = true;
    char epoch[CLI_TEXT_BYTES];
    char run[CLI_TEXT_BYTES];
    const double rest_s = s / (double)l->steps * (double)(total_steps - step);
    cli_progress_clear(&l->progress);
    log_write(&l->log, LOG_LEVEL_INFO, "about %s per epoch, %s to the end%s",
              cli_format_seconds(epoch, s / (double)l->steps * (double)l->steps_per_epoch),
              cli_format_seconds(run, rest_s),
              l->on_cpu && rest_s > demo_s
                  ? "; this is a long run for a CPU: --preset cpu-demo trains a small model"
                  : "");
}

void live_step(void *cookie, const struct step_report *r, uint64_t total_steps) {
    static const int64_t log_every_ns = INT64_C(10) * 1000 * 1000 * 1000;
    struct live *l = cookie;
    l->steps++;
    l->global_loss = r->global_loss;
    const double old = l->steps == 1 ? 0.0 : 0.95;
    l->mean_rate = old * l->mean_rate + (1.0 - old) * r->pairs_per_s;
    l->mean_stall = old * l->mean_stall + (1.0 - old) * r->stall_fraction;
    char extra[256];
    char rate[CLI_TEXT_BYTES];
    (void)snprintf(extra, sizeof extra, "epoch %" PRIu64 "  loss %.4f  %s pairs/s  stall %.0f %%",
                   r->epoch + 1, r->global_loss, cli_format_rate(rate, l->mean_rate),
                   100.0 * l->mean_stall);
    if (r->slowest_pairs_per_s > 0.0) {
        const size_t used = strlen(extra);
        (void)snprintf(extra + used, sizeof extra - used, "  rank %u: %s pairs/s  wait %.0f %%",
                       (unsigned)r->slowest_rank, cli_format_rate(rate, r->slowest_pairs_per_s),
                       100.0 * r->wait_fraction);
    }
    cli_progress_update(&l->progress, r->step, total_steps, 0, extra);
    say_estimate(l, r->step, total_steps);
    const int64_t now_ns = clock_now_ns();
    if (!l->progress.active && !l->quiet &&
        (now_ns - l->logged_ns > log_every_ns || r->step == total_steps)) {
        l->logged_ns = now_ns;
        log_write(&l->log, LOG_LEVEL_INFO, "step %" PRIu64 "/%" PRIu64 "  %s  grad %.3g  lr %.3g",
                  r->step, total_steps, extra, r->grad_norm, r->lr);
    }
}

void live_retrieval(void *cookie, uint64_t step, const struct retrieval_result *r) {
    struct live *l = cookie;
    char images[CLI_TEXT_BYTES];
    char texts[CLI_TEXT_BYTES];
    cli_progress_clear(&l->progress);
    log_write(&l->log, LOG_LEVEL_INFO,
              "step %" PRIu64 "  image to text R@1 %.2f %%, text to image R@1 %.2f %%, mean %.2f %%"
              " (%s, %s)",
              step, r->value[RETRIEVAL_I2T][RETRIEVAL_R1], r->value[RETRIEVAL_T2I][RETRIEVAL_R1],
              r->value[RETRIEVAL_MEAN][RETRIEVAL_R1],
              cli_format_counted(images, r->images, "image"),
              cli_format_counted(texts, r->texts, "text"));
}

void live_zeroshot(void *cookie, uint64_t step, const struct classify_result *r) {
    struct live *l = cookie;
    l->zeroshot = *r;
    l->zeroshot.class_top1 = NULL;
    l->zeroshot.class_images = NULL;
    cli_progress_clear(&l->progress);
    log_write(&l->log, LOG_LEVEL_INFO,
              "step %" PRIu64 "  zero-shot top-1 %.2f %%, top-5 %.2f %%, mean over classes %.2f %%"
              " (%" PRIu64 " images, %d classes)",
              step, r->top1, r->top5, r->per_class, r->images, (int)r->class_count);
}
