#include "suites/training/train.h"

#include "harness/digest.h"
#include "harness/output.h"
#include "harness/plugin.h"
#include "harness/record.h"
#include "harness/recipe.h"
#include "harness/terminal.h"
#include "harness/text.h"
#include "suites/training/session.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum level { CI, NIGHTLY } level;

/* Zero: as the level says. */
typedef struct options {
    int level, backend, norm, activation;
    ng_texts recipes, plugins, kernels;
    const char *baseline, *corpus, *json, *checkpoint;
    int64_t seeds, most_seeds, steps, layers, width, heads, hidden, sequence, batch, vocabulary, classes, evaluations, threads, device, every, draws;
    uint64_t seed;
    double rate, loss_weight, delta;
    bool no_replay, resume, gradients, evaluate, strict, quiet;
} options;

/* A level's model, steps and seeds; its recipes, ended by NULL. */
typedef struct level_row {
    int64_t seeds, steps, layers, width, heads, hidden, sequence, batch, vocabulary, classes, evaluations;
    double rate;
    const char *recipes[16];
} level_row;
static const level_row levels[] = {
    [CI] = {4, 60, 2, 64, 4, 256, 32, 4, 64, 2, 8, 0.006, {"fp32", "bf16", "fp8-current", "mxfp8", "nvfp4"}},
    [NIGHTLY] = {4, 100, 6, 512, 8, 2048, 256, 16, 512, 2, 8, 0.001,
                 {"fp32", "tf32", "bf16:unfused", "bf16", "fp16", "fp8-delayed", "fp8-current", "fp8-current:fast-accum", "fp8-128", "mxfp8", "nvfp4"}},
};

static const char *const level_names[] = {"ci", "nightly", NULL}, *const backend_names[] = {"cpu", "cuda", NULL},
                  *const norm_names[] = {"layernorm", "rmsnorm", NULL}, *const activation_names[] = {"gelu", "swiglu", NULL};

#define ROW(name, letter, kind, value, help, member, choices, least, most) {name, letter, kind, value, help, offsetof(options, member), choices, least, most, false}
#define COUNT(name, help, member, most) ROW(name, 0, NG_COUNT, "N", help, member, NULL, 1, most)
static const ng_option option_rows[] = {
    ROW("recipe", 'r', NG_TEXTS, "GLOB|NAME:INGREDIENTS", "which recipes, again for more; nvfp4:no-sr,no-hadamard,1d-weights,bf16-layers=first1last1;\n"
        "fp8-current:fast-accum; fp16:unscaled; bf16:unfused", recipes, NULL, 0, 0),
    ROW("baseline", 0, NG_TEXT, "NAME", "what each recipe is compared with: fp64 on a CPU, fp32 on a GPU", baseline, NULL, 0, 0),
    ROW("level", 'l', NG_CHOICE, "ci|nightly", "model, steps, seeds and recipes where no option says them", level, level_names, 0, 0),
    ROW("backend", 'b', NG_CHOICE, "cpu|cuda", "where", backend, backend_names, 0, 0),
    ROW("seeds", 0, NG_COUNT, "N", "pairs of runs of each recipe", seeds, NULL, 1, NG_MOST_SEEDS),
    ROW("most-seeds", 0, NG_COUNT, "N", "where a verdict is inconclusive: as many seeds, up to N, as the pairs' spread asks for (power 80 %)", most_seeds, NULL, 1, NG_MOST_SEEDS),
    ROW("seed", 's', NG_SEED, "N", "the first of them", seed, NULL, 0, 0),
    COUNT("steps", "updates of a run", steps, 1000000),
    COUNT("layers", "blocks", layers, 128),
    COUNT("width", "of the model", width, 16384),
    COUNT("heads", "of attention", heads, 256),
    COUNT("hidden", "width between up and down; 4 times the width", hidden, 65536),
    COUNT("sequence", "tokens of a text", sequence, 8192),
    COUNT("batch", "texts of a step", batch, 4096),
    COUNT("vocabulary", "symbols of the generated language", vocabulary, 4096),
    ROW("norm", 0, NG_CHOICE, "layernorm|rmsnorm", "", norm, norm_names, 0, 0),
    ROW("activation", 0, NG_CHOICE, "gelu|swiglu", "", activation, activation_names, 0, 0),
    ROW("corpus", 0, NG_TEXT, "FILE", "learn this file's bytes in place of the generated language", corpus, NULL, 0, 0),
    ROW("rate", 0, NG_SECONDS, "R", "highest learning rate", rate, NULL, 0, 0),
    ROW("loss-weight", 0, NG_SECONDS, "W", "gradients are those of W times the loss: small ones underflow in fp16", loss_weight, NULL, 0, 0),
    ROW("delta", 0, NG_SECONDS, "PERCENT", "loss that a recipe may lose, in place of its own figure", delta, NULL, 0, 0),
    ROW("gradients", 0, NG_FLAG, NULL, "also compare one step's gradients with the baseline's, parameter by parameter", gradients, NULL, 0, 0),
    COUNT("draws", "draws of the random numbers that a gradient's bias is measured over (16)", draws, 10000),
    ROW("evaluate", 0, NG_FLAG, NULL, "also evaluate the baseline's trained models under each recipe", evaluate, NULL, 0, 0),
    ROW("plugin", 'p', NG_TEXTS, "FILE", "a library of kernels", plugins, NULL, 0, 0),
    ROW("kernel", 'k', NG_TEXTS, "GLOB=NAME", "where a kernel that matches would run, run this one", kernels, NULL, 0, 0),
    ROW("checkpoint", 0, NG_TEXT, "FILE", "where the session is kept as it goes", checkpoint, NULL, 0, 0),
    COUNT("checkpoint-every", "steps between checkpoints; otherwise every 10 s", every, 1000000),
    ROW("resume", 0, NG_FLAG, NULL, "go on from --checkpoint FILE, with the bits of a run that was never broken off", resume, NULL, 0, 0),
    ROW("no-replay", 0, NG_FLAG, NULL, "launch a GPU's steps kernel by kernel in place of replaying a recorded one; the same bits", no_replay, NULL, 0, 0),
    ROW("strict", 0, NG_FLAG, NULL, "exit status 1 where a verdict is inconclusive, too", strict, NULL, 0, 0),
    ROW("json", 'j', NG_TEXT, "FILE|-", "write the record, curves included", json, NULL, 0, 0),
    ROW("threads", 't', NG_COUNT, "N", "CPU threads; results do not depend on them", threads, NULL, 1, 1024),
    ROW("device", 0, NG_COUNT, "N", "which GPU", device, NULL, 0, 63),
    ROW("quiet", 'q', NG_FLAG, NULL, "no tables", quiet, NULL, 0, 0),
};
enum { OPTIONS = sizeof option_rows / sizeof *option_rows, MOST_RECIPES = 60 };

/* ---- what the options come to -------------------------------------------------------------------------------------*/
typedef struct command {
    const ng_program *program;
    options options;
    ng_args args;
    ng_plugins plugins;
    ng_training session;
    ng_substitution *substitutions;
    ng_output json;
    bool shows_progress;
    double started_s;
    ng_fingerprint fingerprint;
} command;

static int64_t chosen(int64_t option, int64_t otherwise) { return option ? option : otherwise; }

static ng_status settle_shape(command *c, ng_error *error) {
    const options *o = &c->options;
    const level_row *l = &levels[o->level];
    ng_run_settings *s = &c->session.settings;
    *s = (ng_run_settings){.steps = chosen(o->steps, l->steps), .evaluations = l->evaluations, .rate = o->rate > 0 ? o->rate : l->rate,
                           .loss_weight = o->loss_weight > 0 ? o->loss_weight : 1, .beta_1 = 0.9, .beta_2 = 0.95, .epsilon = 1e-12, .decay = 0.1, .max_norm = 1,
                           .checkpoint_every = o->every, .no_replay = o->no_replay};
    s->shape = (ng_model_shape){.layers = chosen(o->layers, l->layers), .width = chosen(o->width, l->width), .heads = chosen(o->heads, l->heads),
                                .hidden = o->hidden ? o->hidden : o->width ? 4 * o->width : l->hidden, .sequence = chosen(o->sequence, l->sequence),
                                .batch = chosen(o->batch, l->batch), .rms = o->norm == 1, .swiglu = o->activation == 1};
    c->session.seed_count = (size_t)chosen(o->seeds, l->seeds);
    c->session.seed_capacity = o->most_seeds > (int64_t)c->session.seed_count ? (size_t)o->most_seeds : c->session.seed_count;
    c->session.first_seed = o->seed;
    c->session.alpha = 0.05;
    c->session.power = 0.8;
    const ng_source_options source = {o->corpus, 1, (int32_t)chosen(o->vocabulary, l->vocabulary), (int32_t)l->classes, 6};
    ng_status status = ng_source_create(&source, &c->session.source, error);
    s->shape.vocabulary = c->session.source.vocabulary;
    c->session.floor = ng_source_floor(&c->session.source, s->shape.sequence);
    if (!status) status = ng_model_shape_check(&s->shape, error);
    return status ? status : ng_layout_create(&s->shape, &c->session.layout, error);
}

static ng_status add_recipe(command *c, const char *text, ng_error *error) {
    ng_training *s = &c->session;
    ng_recipe_result *r = &s->recipes[s->recipe_count];
    for (size_t i = 0; i < s->recipe_count; i++)
        if (!strcmp(s->recipes[i].choice.name, text)) return NG_OK;
    if (s->recipe_count == MOST_RECIPES) return ng_fail(error, NG_BAD_ARGUMENT, "more than %d recipes", MOST_RECIPES);
    ng_status status = ng_recipe_parse(text, &r->choice, error);
    if (status) return status;
    r->delta = c->options.delta > 0 ? c->options.delta / 100 : r->choice.recipe->delta;
    s->recipe_count++;
    return NG_OK;
}

/* A word with ingredients, or a glob on the recipes' names. */
static ng_status add_recipes(command *c, const char *word, ng_error *error) {
    ng_status status = NG_OK;
    size_t matches = 0;
    if (strchr(word, ':')) return add_recipe(c, word, error);
    for (size_t i = 0; i < ng_training_recipe_count && !status; i++)
        if (!fnmatch(word, ng_training_recipes[i].name, 0)) {
            matches++;
            status = add_recipe(c, ng_training_recipes[i].name, error);
        }
    if (status || matches) return status;
    char names[512] = "";
    for (size_t i = 0, used = 0; i < ng_training_recipe_count && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", ng_training_recipes[i].name);
    return ng_fail(error, NG_BAD_ARGUMENT, "no recipe matches '%.60s'; there are %s", word, names);
}

static ng_status settle_recipes(command *c, ng_error *error) {
    const options *o = &c->options;
    c->session.recipes = calloc(MOST_RECIPES, sizeof *c->session.recipes);
    if (!c->session.recipes) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    ng_status status = add_recipe(c, o->baseline ? o->baseline : o->backend == NG_BACKEND_CPU ? "fp64" : "fp32", error);
    for (size_t i = 0; i < o->recipes.count && !status; i++)
        status = add_recipes(c, o->recipes.items[i], error);
    for (size_t i = 0; !o->recipes.count && levels[o->level].recipes[i] && !status; i++)
        status = add_recipe(c, levels[o->level].recipes[i], error);
    return status;
}

static ng_status substitute(command *c, const char *text, ng_substitution *s, ng_error *error) {
    const char *equals = strchr(text, '=');
    const ng_catalogue catalogue = ng_plugins_catalogue(&c->plugins);
    if (!equals || equals == text || (size_t)(equals - text) >= sizeof s->glob)
        return ng_fail(error, NG_BAD_ARGUMENT, "--kernel '%.80s': expected GLOB=NAME", text);
    snprintf(s->glob, sizeof s->glob, "%.*s", (int)(equals - text), text);
    for (size_t i = 0; i < catalogue.count; i++)
        if (!strcmp(catalogue.kernels[i]->name, equals + 1)) s->kernel = catalogue.kernels[i];
    return s->kernel ? NG_OK : ng_fail(error, NG_BAD_ARGUMENT, "--kernel: there is no kernel %.120s", equals + 1);
}

static ng_status settle_engine(command *c, ng_error *error) {
    const options *o = &c->options;
    const ng_program *p = c->program;
    ng_status status = ng_plugins_load(p->kernels, p->kernel_count, o->plugins.items, o->plugins.count, &c->plugins, error);
    c->substitutions = calloc(o->kernels.count + 1, sizeof *c->substitutions);
    if (!status && !c->substitutions) status = ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < o->kernels.count && !status; i++)
        status = substitute(c, o->kernels.items[i], &c->substitutions[i], error);
    if (status) return status;
    const ng_catalogue catalogue = ng_plugins_catalogue(&c->plugins);
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    status = ng_engine_open((ng_backend)o->backend, (int)o->device, o->threads ? (int)o->threads : online > 0 ? (int)online : 1, &catalogue, &c->session.engine, error);
    c->session.engine.substitutions = c->substitutions;
    c->session.engine.substitution_count = o->kernels.count;
    return status;
}

/* Of what decides a session's bits; the corpus by its bytes. */
static uint64_t identity(const command *c) {
    char text[8192];
    const options *o = &c->options;
    const ng_run_settings *s = &c->session.settings;
    const ng_model_shape *m = &s->shape;
    char corpus[NG_DIGEST_BYTES] = "";
    if (o->corpus && ng_digest_file(o->corpus, corpus, NULL)) *corpus = 0;
    size_t used = (size_t)snprintf(text, sizeof text, "%s %s %d %lld %lld %lld %lld %lld %lld %lld %d %d %lld %lld %a %a %zu %llu %s", c->program->build->commit,
        c->program->build->kernels_digest, o->backend, (long long)m->layers, (long long)m->width, (long long)m->heads, (long long)m->hidden,
        (long long)m->sequence, (long long)m->batch, (long long)m->vocabulary, m->rms, m->swiglu, (long long)s->steps, (long long)s->evaluations, s->rate,
        s->loss_weight, c->session.seed_capacity, (unsigned long long)o->seed, corpus);
    for (size_t i = 0; i < c->session.recipe_count && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, " %s", c->session.recipes[i].choice.name);
    for (size_t i = 0; i < o->kernels.count && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, " %s", o->kernels.items[i]);
    return ng_digest_text(text, 1);
}

/* A place that cannot be written shows before the work, not after it. */
static ng_status settle_checkpoint(command *c, ng_error *error) {
    ng_training *s = &c->session;
    ng_status status = NG_OK;
    if (c->options.resume && !s->checkpoint) return ng_fail(error, NG_BAD_ARGUMENT, "--resume goes on from --checkpoint FILE: which?");
    if (!s->checkpoint) return NG_OK;
    if (c->options.resume) status = ng_checkpoint_read(s, error);
    else if (!access(s->checkpoint, F_OK)) status = ng_fail(error, NG_BAD_ARGUMENT, "%s is there already: --resume goes on with it", s->checkpoint);
    return status ? status : ng_checkpoint_write(s, error);
}

static ng_status settle_memory(command *c, ng_error *error) {
    ng_training *s = &c->session;
    ng_status status = NG_OK;
    s->curves = calloc(s->recipe_count * s->seed_capacity, sizeof *s->curves);
    s->weights = calloc(s->seed_capacity, sizeof *s->weights);
    if (!s->curves || !s->weights) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < s->recipe_count * s->seed_capacity && !status; i++)
        status = ng_curve_create(&s->settings, &s->curves[i], error);
    s->checkpoint = c->options.checkpoint;
    s->identity = identity(c);
    s->written_s = ng_monotonic_s();
    return status ? status : settle_checkpoint(c, error);
}

/* ---- the command --------------------------------------------------------------------------------------------------*/
static void show_progress(void *context, size_t run, size_t runs, int64_t step, int64_t steps) {
    const command *c = context;
    if (!c->shows_progress) return;
    enum { BAR = 24 };
    const double done = ((double)run + (double)step / (double)steps) / (double)runs, elapsed = ng_monotonic_s() - c->started_s;
    char bar[BAR + 1], left[NG_FIGURE_BYTES];
    for (int i = 0; i < BAR; i++)
        bar[i] = (double)i < done * BAR ? '#' : '.';
    bar[BAR] = 0;
    ng_figure_time(done > 0 ? elapsed * (1 - done) / done : 0, left);
    fprintf(stderr, "\r\033[K[%s] run %zu of %zu, %s, step %lld of %lld, %s left", bar, run + 1, runs,
            c->session.recipes[run % c->session.recipe_count].choice.name, (long long)step, (long long)steps, left);
    fflush(stderr);
}

static ng_status write_record(command *c, int argc, char **argv, const char started[32], ng_error *error) {
    const options *o = &c->options;
    const ng_case_list none = {0};
    if (!c->json.stream) return NG_OK;
    ng_fingerprint_collect(c->program->build, &c->plugins, o->backend == NG_BACKEND_CPU ? NULL : c->program->gpu_probe, (int)o->device, &c->fingerprint);
    ng_run_record record = {.argc = argc, .argv = argv, .level = o->level == CI ? NG_CI : NG_NIGHTLY, .seed = o->seed, .device = (int)o->device,
                            .fingerprint = &c->fingerprint, .list = &none, .write_more = ng_training_write, .more = &c->session};
    ng_record_id(record.id);
    snprintf(record.started, sizeof record.started, "%.31s", started);
    ng_timestamp(record.finished);
    ng_record_write(c->json.stream, &record);
    return ng_output_commit(&c->json, error);
}

static ng_status run_and_judge(ng_training *s, const ng_training_events *events, ng_error *error) {
    ng_status status = ng_training_run(s, events, error);
    if (status) return status;
    ng_training_judge(s);
    const size_t needed = ng_training_seeds_needed(s);
    if (needed <= s->seed_count) return NG_OK;
    s->seed_count = needed;
    status = ng_training_run(s, events, error);
    if (!status) ng_training_judge(s);
    return status;
}

static ng_status run(command *c, int argc, char **argv, ng_error *error) {
    const ng_training_events events = {c, show_progress};
    char started[32];
    ng_timestamp(started);
    c->started_s = ng_monotonic_s();
    c->shows_progress = isatty(STDERR_FILENO) && !c->options.quiet;
    ng_status status = ng_output_open(c->options.json, &c->json, error);
    if (!status) status = run_and_judge(&c->session, &events, error);
    if (c->shows_progress) fputs("\r\033[K", stderr);
    if (status) return status;
    if (c->options.gradients) status = ng_training_gradients(&c->session, 8, c->options.draws ? (int)c->options.draws : 16, error);
    if (!status && c->options.evaluate) status = ng_training_evaluate(&c->session, error);
    if (!status && !c->options.quiet) ng_training_print(c->json.stream == stdout ? stderr : stdout, &c->session);
    return status ? status : write_record(c, argc, argv, started, error);
}

static ng_status verdict(const command *c, int *exit_status, ng_error *error) {
    size_t ran = 0, failed = 0, unclear = 0;
    const ng_training *s = &c->session;
    const char *why = "";
    for (size_t i = 1; i < s->recipe_count; i++) {
        const ng_recipe_result *r = &s->recipes[i];
        if (*r->skipped) why = r->skipped;
        ran += !*r->skipped;
        failed += !*r->skipped && r->verdict == NG_GAP_FAIL;
        unclear += !*r->skipped && r->verdict == NG_GAP_INCONCLUSIVE;
    }
    *exit_status = failed || (c->options.strict && unclear) ? NG_EXIT_REGRESSION : NG_EXIT_OK;
    return ran || s->recipe_count == 1 ? NG_OK : ng_fail(error, NG_UNSUPPORTED, "no recipe could run: %s", why);
}

static void release(command *c) {
    ng_output_discard(&c->json);
    ng_training_free(&c->session);
    ng_plugins_free(&c->plugins);
    free(c->substitutions);
    ng_args_free(option_rows, OPTIONS, &c->options, &c->args);
    free(c);
}

static void print_help(const ng_program *program) {
    ng_command_usage(stdout, program, "train",
                     "Trains small Transformers, built from the catalogue's kernels, under training recipes, and tests whether each\n"
                     "loses more than its delta against the baseline: paired seeds, a one-sided t test, Holm's correction. Exit\n"
                     "status 1 where a recipe does; inconclusive verdicts are named.");
    ng_args_help(stdout, option_rows, OPTIONS);
    puts("Recipes:");
    for (size_t i = 0; i < ng_training_recipe_count; i++)
        printf("  %-14s %s; delta %.2f %%\n", ng_training_recipes[i].name, ng_training_recipes[i].says, 100 * ng_training_recipes[i].delta);
}

int ng_command_train(const ng_program *program, int argc, char **argv) {
    ng_error error = {0};
    int exit_status = NG_EXIT_OK;
    command *c = calloc(1, sizeof *c);
    if (!c) return ng_no_verdict(program, "train", "out of memory");
    c->program = program;
    c->options.seed = 1;
    ng_status status = ng_args_parse(option_rows, OPTIONS, argc, argv, &c->options, &c->args, &error);
    if (!status && c->args.help) {
        print_help(program);
        release(c);
        return NG_EXIT_OK;
    }
    if (!status) status = settle_shape(c, &error);
    if (!status) status = settle_recipes(c, &error);
    if (!status) status = settle_engine(c, &error);
    if (!status) status = settle_memory(c, &error);
    if (!status) status = run(c, argc + 1, argv - 1, &error); /* the whole command line, the program's own name included */
    if (!status) status = verdict(c, &exit_status, &error);
    release(c);
    return status ? ng_no_verdict(program, "train", error.text) : exit_status;
}
