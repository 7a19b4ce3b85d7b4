/*
 * announce: lines about a run, from values known to the trainer.
 */
#include "tools/ccstream_train/ccstream_train_internal.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

void announce_start(const struct log_sink *log,
                    const struct trainer *t,
                    const struct train_options *o,
                    const char *run) {
    const struct trainer_summary sum = trainer_summary(t);
    const bool texts_alone = train_options_texts_alone(o);
    const bool clip = o->trainer.model != NULL;
    log_write(log, LOG_LEVEL_INFO,
              "%s + %s, %s parameters, %s; %s, %s per epoch; loss %s, device %s, reading by %s",
              clip          ? "image tower"
              : texts_alone ? o->trainer.text_tower
                            : o->trainer.image_tower,
              texts_alone            ? "projection"
              : o->trainer.task != 0 ? "projection head"
              : clip                 ? "text transformer of open_clip"
                                     : o->trainer.text_tower,
              cli_format_count((uint64_t)sum.memory.parameter_count),
              cli_format_bytes(sum.memory.total_bytes),
              cli_format_counted(sum.samples_count, "sample"),
              cli_format_counted(sum.steps_per_epoch, "step"), sum.loss, sum.device, sum.engine);
    struct loss_options row = o->trainer.loss;
    row.name = sum.loss;
    const uint64_t positives =
        o->trainer.task == TRAINER_PAIRS ? (uint64_t)loss_positives(&row) : 1;
    const uint64_t each = o->trainer.batch_count / positives;
    const uint64_t used = sum.steps_per_epoch * each;
    if (used < sum.samples_count && sum.samples_count - used < each) {
        log_write(log, LOG_LEVEL_INFO,
                  "%s at the end of each epoch, different ones each time, do not fill a batch and "
                  "are skipped",
                  cli_format_counted(sum.samples_count - used, "sample"));
    }
    if (o->trainer.init != NULL && sum.resumed_step == 0) {
        log_write(log, LOG_LEVEL_INFO,
                  "--init: image size, tokenizer and augmentation are taken from %s unless given "
                  "on the command line",
                  o->trainer.init);
    }
    if (strcmp(sum.state, "host") != 0) {
        log_write(log, LOG_LEVEL_INFO,
                  "the loss runs on the device, with its per-sample state in %s",
                  strcmp(sum.state, "device") == 0 ? "device memory" : "pinned host memory");
    }
    if (train_options_loss_reads(o, LOSS_ZETA_LR) && train_options_zeta_is_frozen(o)) {
        log_write(log, LOG_LEVEL_INFO,
                  "zeta stays frozen for the whole run: --zeta-freeze-epochs is %" PRIu64,
                  o->trainer.loss.zeta_freeze_epochs);
    } else if (train_options_loss_reads(o, LOSS_ZETA_LR)) {
        struct loss_options loss = o->trainer.loss;
        loss_resolve_auto(&loss);
        log_write(log, LOG_LEVEL_INFO,
                  "zeta: learning rate %s, of images %.4g times that, frozen for %" PRIu64
                  " epochs",
                  loss.zeta_by_visit ? "auto (tau / (t + 2) at visit t, at least tau / 10)"
                                     : cli_format("%.4g", loss.zeta_lr),
                  loss.zeta_lr_image_ratio, loss.zeta_freeze_epochs);
    }
    if (sum.device_note[0] != '\0') {
        log_write(log, LOG_LEVEL_INFO, "%s", sum.device_note);
    }
    if (sum.resumed_step > 0) {
        log_write(log, LOG_LEVEL_INFO, "resuming %s at step %" PRIu64, run, sum.resumed_step);
    }
    if (sum.step >= sum.total_steps) {
        log_write(log, LOG_LEVEL_INFO, "%s is finished after %s", run,
                  cli_format_counted(sum.step, "step"));
    }
}

void announce_end(const struct log_sink *log, const struct train_options *o, const char *run) {
    const char *data = o->trainer.val != NULL ? o->trainer.val : o->data.items[0];
    const char *page = cli_format("%s/report.html", run);
    log_write(log, LOG_LEVEL_INFO, "model: %s/last%s%s", run,
              access(page, R_OK) == 0 ? ", page: " : "", access(page, R_OK) == 0 ? page : "");
    if (o->trainer.task == TRAINER_PAIRS) {
        log_write(log, LOG_LEVEL_INFO, "next: ccstream-eval retrieval %s --data %s", run, data);
    }
}

void announce_ranks(const struct log_sink *log, const struct trainer_options *t) {
    const int world = comm_world(t->comm);
    const uint32_t count = t->batch_count / (uint32_t)world;
    if (world == 1) {
        return;
    }
    log_write(log, LOG_LEVEL_INFO,
              "%d ranks, %d on this host: each with %u of the %u pairs of a batch, %u compute "
              "threads and %u decode threads",
              world, (int)comm_local_world(t->comm), count, t->batch_count, t->threads,
              t->loader_threads);
    if (!t->sync_bn && (t->micro_batch_count == 0 || count % t->micro_batch_count != 0)) {
        log_write(log, LOG_LEVEL_INFO,
                  "batch-norm statistics cover other groups than with one rank; to reproduce one "
                  "rank, use a --micro-batch that divides %u%s",
                  count, t->micro_batch_count == 0 ? ", or --sync-bn" : "");
    }
}

void announce_sources(const struct log_sink *log, const struct trainer *t, uint32_t count) {
    double all = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct trainer_source s = trainer_source(t, i);
        all += s.weight > 0 ? s.weight : (double)s.samples_count;
    }
    for (uint32_t i = 0; i < count && count > 1; i++) {
        const struct trainer_source s = trainer_source(t, i);
        log_write(log, LOG_LEVEL_INFO, "%.3g %% from %s: %s, ids from %" PRIu64,
                  100 * (s.weight > 0 ? s.weight : (double)s.samples_count) / all, s.directory,
                  cli_format_counted(s.samples_count, "sample"), s.id_offset);
    }
}

void announce_changes(const struct log_sink *log,
                      const struct trainer *t,
                      const struct train_options *o,
                      const struct train_options *recorded) {
    const struct trainer_summary sum = trainer_summary(t);
    const uint64_t per_epoch = sum.steps_per_epoch;
    if (o->trainer.epochs != recorded->trainer.epochs) {
        log_write(log, LOG_LEVEL_INFO,
                  "--epochs %" PRIu64 " instead of %" PRIu64 ": the schedule ends at step %" PRIu64
                  " instead of %" PRIu64,
                  o->trainer.epochs, recorded->trainer.epochs, o->trainer.epochs * per_epoch,
                  recorded->trainer.epochs * per_epoch);
    }
    if (o->trainer.lr != recorded->trainer.lr || o->trainer.min_lr != recorded->trainer.min_lr) {
        log_write(log, LOG_LEVEL_INFO,
                  "learning rate from %g down to %g instead of from %g down to %g", o->trainer.lr,
                  o->trainer.min_lr, recorded->trainer.lr, recorded->trainer.min_lr);
    }
    if ((o->trainer.epochs != recorded->trainer.epochs || o->trainer.lr != recorded->trainer.lr ||
         o->trainer.min_lr != recorded->trainer.min_lr) &&
        sum.step < o->trainer.epochs * per_epoch) {
        log_write(log, LOG_LEVEL_INFO, "learning rate of step %" PRIu64 ": %.3g", sum.step + 1,
                  sum.next_lr);
    }
}

void announce_messages(const struct log_sink *log, const struct comm *comm, uint64_t steps) {
    const struct comm_counters c = comm_counters(comm);
    if (comm_world(comm) > 1 && steps > 0) {
        log_write(log, LOG_LEVEL_INFO,
                  "rank 0 of %d sent %.1f messages and %s per step, and waited %s in all",
                  (int)comm_world(comm), (double)c.messages_count / (double)steps,
                  cli_format_bytes(c.sent_bytes / steps),
                  cli_format_seconds((double)c.wait_ns * 1e-9));
    }
}
