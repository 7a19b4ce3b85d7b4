/*
 * Learning rates: warm-up, cosine, and zeta's freeze.
 */
#include <math.h>

#include "tests/support/test.h"
#include "train/optim/schedule.h"

static const struct schedule example = {.peak_lr = 2e-4,
                                        .final_lr = 1e-6,
                                        .warmup_steps = 10,
                                        .total_steps = 110};

TEST(after_frozen_steps_the_schedule_is_the_same) {
    struct schedule frozen = example;
    frozen.frozen_steps = 7;
    frozen.total_steps += 7;
    for (uint64_t step = 0; step < 120; step++) {
        assert_true(schedule_lr(&frozen, step) ==
                    (step < 7 ? 0.0 : schedule_lr(&example, step - 7)));
    }
}

TEST(warmup_is_linear_and_reaches_the_peak) {
    assert_true(fabs(schedule_lr(&example, 0) - 2e-5) < 1e-18);
    assert_true(fabs(schedule_lr(&example, 4) - 1e-4) < 1e-18);
    assert_true(fabs(schedule_lr(&example, 9) - 2e-4) < 1e-18);
    assert_true(fabs(schedule_lr(&example, 10) - 2e-4) < 1e-18);
}

TEST(cosine_falls_to_the_final_rate) {
    assert_true(fabs(schedule_lr(&example, 60) - (1e-6 + 0.5 * (2e-4 - 1e-6))) < 1e-15);
    assert_true(fabs(schedule_lr(&example, 110) - 1e-6) < 1e-15);
    for (uint64_t s = 10; s < 110; s++) {
        assert_true(schedule_lr(&example, s + 1) < schedule_lr(&example, s));
    }
}

TEST(schedules_without_warmup_or_steps_after_it_are_defined) {
    const struct schedule none = {
        .peak_lr = 1.0, .final_lr = 0.0, .warmup_steps = 0, .total_steps = 4};
    assert_true(schedule_lr(&none, 0) == 1.0);
    const struct schedule all = {
        .peak_lr = 1.0, .final_lr = 0.25, .warmup_steps = 4, .total_steps = 4};
    assert_true(schedule_lr(&all, 3) == 1.0);
    assert_true(fabs(schedule_lr(&all, 4) - 0.25) < 1e-15);
}

TEST(warmup_by_stairs_is_that_of_the_published_run) {
    const struct schedule s = {.peak_lr = 2e-4,
                               .final_lr = 1e-6,
                               .warmup_steps = 500,
                               .plateau = true,
                               .total_steps = 5466 * 30};
    for (uint64_t step = 0; step <= 501; step++) {
        const double published = schedule_reference_lr(&s, 30, 0, step);
        assert_true(fabs(schedule_lr(&s, step) - published) < 1e-7 * published);
    }
    /* Then the cosine, whatever the stairs left over. */
    const struct schedule uneven = {
        .peak_lr = 1.0, .final_lr = 0.0, .warmup_steps = 12, .plateau = true, .total_steps = 40};
    for (uint64_t step = 1; step < 40; step++) {
        const bool rising = step <= 11;
        const double change = schedule_lr(&uneven, step) - schedule_lr(&uneven, step - 1);
        assert_true(rising ? change >= 0.0 : change <= 0.0);
    }
    assert_true(fabs(schedule_lr(&uneven, 0) - 0.05) < 1e-15);
    assert_true(fabs(schedule_lr(&uneven, 40)) < 1e-15);
}

TEST(zeta_is_frozen_then_follows_a_cosine) {
    assert_true(schedule_zeta_lr(5e-6, 50, 300, 49) == 0.0);
    assert_true(fabs(schedule_zeta_lr(5e-6, 50, 300, 50) - 5e-6) < 1e-20);
    assert_true(fabs(schedule_zeta_lr(5e-6, 50, 300, 175) - 2.5e-6) < 1e-18);
    assert_true(fabs(schedule_zeta_lr(5e-6, 50, 300, 300)) < 1e-18);
    assert_true(schedule_zeta_lr(5e-6, 300, 300, 299) == 0.0);
    assert_true(schedule_zeta_lr(5e-6, 0, 0, 0) == 0.0);
}

/* The table of the published run: 30 epochs, 2e-4 down to 1e-6. */
TEST(gamma_falls_from_one_along_half_a_cosine) {
    assert_true(schedule_gamma(0.2, 18, 0) == 1.0);
    assert_true(fabs(schedule_gamma(0.2, 18, 9) - 0.6) < 1e-15);
    assert_true(fabs(schedule_gamma(0.2, 18, 6) - (0.2 + 0.8 * 0.75)) < 1e-15);
    assert_true(schedule_gamma(0.2, 18, 17) > 0.2);
    assert_true(schedule_gamma(0.2, 18, 18) == 0.2 && schedule_gamma(0.2, 18, 36) == 0.2);
    /* Without epochs to fall in, the first alone takes g as it is. */
    assert_true(schedule_gamma(0.2, 0, 0) == 1.0 && schedule_gamma(0.2, 0, 1) == 0.2);
    assert_true(schedule_gamma(1.0, 4, 2) == 1.0);
}

TEST(reference_rates_are_those_of_the_published_run) {
    const struct schedule s = {.peak_lr = 2e-4, .final_lr = 1e-6};
    static const struct {
        uint64_t epoch, batch;
        double lr;
    } rows[] = {
        {0, 0, 1e-5},       {0, 100, 1e-5},      {0, 101, 4.8e-5},   {0, 200, 4.8e-5},
        {0, 201, 8.6e-5},   {0, 301, 1.24e-4},   {0, 401, 1.62e-4},  {0, 500, 1.62e-4},
        {0, 501, 2e-4},     {0, 5465, 2e-4},     {1, 0, 1.99455e-4}, {2, 7, 1.97826e-4},
        {5, 0, 1.86670e-4}, {29, 99, 1.5451e-6},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const double lr = schedule_reference_lr(&s, 30, rows[i].epoch, rows[i].batch);
        assert_true(fabs(lr - rows[i].lr) < 4e-5 * rows[i].lr);
    }
    for (uint64_t e = 1; e < 30; e++) {
        const double lr = 1e-6 + 0.5 * (2e-4 - 1e-6) * (1.0 + cos(acos(-1.0) * (double)e / 30.0));
        assert_true(fabs(schedule_reference_lr(&s, 30, e, 0) - lr) < 1e-7 * lr);
    }
    assert_true(schedule_reference_zeta_lr(5e-6, 5, 30, 4) == 0.0);
    assert_true(schedule_reference_zeta_lr(5e-6, 5, 30, 5) == 5e-6);
    assert_true(schedule_reference_zeta_lr(5e-6, 5, 30, 29) == 0.0);
    double sum = 0.0;
    for (uint64_t e = 0; e < 30; e++) {
        sum += schedule_reference_zeta_lr(5e-6, 5, 30, e);
    }
    assert_true(fabs(sum - 4.5906e-5) < 1e-9);
}
