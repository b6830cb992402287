#include "harness/select.h"
#include "harness/install.h"
#include "harness/record.h"
#include "harness/tensorfile.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const backend_choices[] = {"cpu", "cuda", "all", NULL};
static const char *const mode_choices[] = {"prequantized", "autocast", NULL};
static const char *const verify_choices[] = {"gpu", "cpu", NULL};
static const char *const save_choices[] = {"never", "failing", "always", NULL};

#define AT(member) .offset = offsetof(ng_options, member)

const ng_option ng_option_rows[] = {
    {"level", 'l', NG_CHOICE, "smoke|ci|nightly", "how much of the case tables (default smoke)", AT(level),
     .choices = ng_level_names},
    {"seed", 's', NG_SEED, "N", "of all random data (default 1)", AT(seed)},
    {"backend", 'b', NG_CHOICE, "cpu|cuda|all", "default all: what is there. One asked for by name and absent: exit 2",
     AT(backend), .choices = backend_choices, .selects = true},
    {"filter", 'f', NG_TEXTS, "GLOB", "only cases whose id matches; may be given several times", AT(filters)},
    {"model", 'm', NG_TEXT, "FILE", "products of a layer of the model that a Hugging Face config.json describes,\n"
     "instead of the case tables; or the name of one installed with the program: llama3-8b", AT(model), .selects = true},
    {"batch", 0, NG_COUNT, "B", "with --model: sequences in a batch (default 1)", AT(batch), .least = 1, .most = 1 << 30,
     .selects = true},
    {"seq", 0, NG_COUNT, "S", "with --model: tokens in a sequence (default 128)", AT(sequence), .least = 1,
     .most = 1 << 30, .selects = true},
    {"tensor-parallel", 0, NG_COUNT, "N", "with --model: one of N devices' share (default 1)", AT(tensor_parallel),
     .least = 1, .most = 1 << 20, .selects = true},
    {"shape", 0, NG_EXTENTS, "MxNxK", "products of that shape instead of the case tables", AT(shape), .selects = true},
    {"tensors", 't', NG_TEXT, "FILE[:NAME]", "quantization of the tensors of a .safetensors or .npy file, or of one of them",
     AT(tensors), .selects = true},
    {"x", 0, NG_TEXT, "FILE[:NAME]", "real activations, weights, gradients as operands: fprop takes x and w, dgrad dy and w,\n"
     "wgrad dy and x; give two or three", AT(x), .selects = true},
    {"w", 0, NG_TEXT, "FILE[:NAME]", "weights [out][in]", AT(w), .selects = true},
    {"dy", 0, NG_TEXT, "FILE[:NAME]", "gradients [tokens][out]", AT(dy), .selects = true},
    {"data", 'd', NG_TEXT, "NAME[,NAME]", "distributions of random data instead of the tables' own", AT(data), .selects = true},
    {"mode", 0, NG_CHOICES, "MODE[,MODE]", "prequantized: the product alone; autocast: quantization included", AT(modes),
     .choices = mode_choices, .selects = true},
    {"recipe", 'R', NG_TEXT, "GLOB[,GLOB]", "with --model, --shape or --x --w --dy: products under whole recipes, quantization included,\n"
     "instead of single kernels; '*': every recipe", AT(recipe), .selects = true},
    {"budget", 0, NG_TEXT, "DB", "with --model: the fastest recipe of each layer and phase whose signal-to-noise ratio is at least\n"
     "DB, and what the whole model then takes; --recipe '*' unless said otherwise", AT(budget), .selects = true},
    {"full", 0, NG_FLAG, NULL, "check every element of every product, however long it takes", AT(full), .selects = true},
    {"verify", 0, NG_CHOICE, "gpu|cpu", "who verifies whole products of GPU kernels (default gpu, held to the CPU's reference on a\n"
     "sample); cpu: a GPU is never its own witness, and products are sampled unless --full", AT(verify),
     .choices = verify_choices, .selects = true},
    {"plugin", 'p', NG_TEXTS, "LIB", "a shared library with more kernels; may be given several times", AT(plugins),
     .selects = true},
    {"json", 'o', NG_TEXT, "FILE|-", "the record of the run (list: the cases) as JSON", AT(json)},
    {"junit", 0, NG_TEXT, "FILE|-", "results as JUnit XML", AT(junit)},
    {"tap", 0, NG_TEXT, "FILE|-", "results as TAP 13", AT(tap)},
    {"tag", 0, NG_TEXTS, "KEY=VALUE", "written into the record; may be given several times", AT(tags)},
    {"save", 0, NG_CHOICE, "failing|always", "keep operands and results of failing cases, or of all", AT(save),
     .choices = save_choices},
    {"save-dir", 0, NG_TEXT, "DIR", "where --save puts them (default narrowgauge-saved)", AT(save_directory)},
    {"journal", 'J', NG_TEXT, "FILE", "keep a journal that a broken run goes on from. Without this, --json FILE keeps one\n"
     "in FILE.journal and removes it when the run has ended", AT(journal)},
    {"resume", 'r', NG_TEXT, "JOURNAL", "go on with a run that broke off; its options come from the journal", AT(resume)},
    {"timeout", 0, NG_SECONDS, "S", "for each case; 0: none (default 600; with --full none)", AT(timeout_s)},
    {"threads", 'j', NG_COUNT, "N", "CPU threads (default: all); no result depends on it", AT(threads), .least = 1,
     .most = 4096},
    {"device", 0, NG_COUNT, "I", "which GPU (default 0)", AT(device), .least = 0, .most = 4095},
    {"no-speed", 0, NG_FLAG, NULL, "do not measure time", AT(no_speed)},
    {"variants", 0, NG_FLAG, NULL, "judge and time all algorithms of a kernel, not its first choice alone", AT(variants)},
    {"warm-cache", 0, NG_FLAG, NULL, "time with data in the cache", AT(warm_cache)},
    {"goldens", 0, NG_TEXT, "DIR|none", "recorded bits to compare with (default: those installed with the program)", AT(goldens)},
    {"expectations", 0, NG_TEXT, "DIR|none", "known failures, flakes and skips (default: those installed)", AT(expectations)},
    {"no-retry", 0, NG_FLAG, NULL, "do not run failures again in a fresh process", AT(no_retry)},
    {"dry-run", 'n', NG_FLAG, NULL, "print the ids of the cases and stop", AT(dry_run)},
    {"quiet", 'q', NG_FLAG, NULL, "only what failed", AT(quiet)},
};
const size_t ng_select_option_count = 21;
const size_t ng_run_option_count = sizeof ng_option_rows / sizeof *ng_option_rows;

ng_options ng_default_options(void) {
    return (ng_options){.level = NG_SMOKE, .backend = NG_BACKENDS, .seed = 1, .batch = 1, .sequence = 128,
                        .tensor_parallel = 1, .timeout_s = 600};
}

ng_status ng_data_folder(const char *option, const char *installed, char **folder, ng_error *error) {
    *folder = NULL;
    if (option && !strcmp(option, "none")) return NG_OK;
    if (!option) return ng_installed_file(installed, folder) == NG_NO_MEMORY ? ng_fail(error, NG_NO_MEMORY, "out of memory") : NG_OK;
    *folder = strdup(option);
    return *folder ? NG_OK : ng_fail(error, NG_NO_MEMORY, "out of memory");
}

double ng_budget_db(const ng_options *o) {
    char *end;
    if (!o->budget) return 0;
    double db = strtod(o->budget, &end);
    return *end || end == o->budget || !(db > 0 && db < 1000) ? 0 : db;
}

/* ---- what does not go together ------------------------------------------------------------------------------------*/
static ng_status check_options(const ng_options *o, const ng_args *args, ng_error *error) {
    static const char *const with_model[] = {"batch", "seq", "tensor-parallel"};
    bool operands = o->x || o->w || o->dy;
    int sources = (o->model != NULL) + (o->shape[0] != 0) + (o->tensors != NULL) + operands;
    if (sources > 1)
        return ng_fail(error, NG_BAD_ARGUMENT, "--model, --shape, --tensors and --x --w --dy exclude each other");
    for (size_t i = 0; i < 3; i++)
        if (!o->model && ng_args_has(args, with_model[i]))
            return ng_fail(error, NG_BAD_ARGUMENT, "--%s needs --model FILE", with_model[i]);
    if (operands && (o->x != NULL) + (o->w != NULL) + (o->dy != NULL) < 2)
        return ng_fail(error, NG_BAD_ARGUMENT,
                       "a product takes two operands: give two or three of --x, --w and --dy");
    if ((o->recipe || o->budget) && !o->model && !o->shape[0] && !operands)
        return ng_fail(error, NG_BAD_ARGUMENT, "--%s needs --model, --shape or --x --w --dy", o->budget ? "budget" : "recipe");
    if (o->budget && !ng_budget_db(o)) return ng_fail(error, NG_BAD_ARGUMENT, "--budget '%s': expected decibels above 0, as 30", o->budget);
    if (o->recipe && o->modes) return ng_fail(error, NG_BAD_ARGUMENT, "--mode is of single kernels: a recipe says itself what it quantizes");
    if ((operands || o->tensors) && o->data)
        return ng_fail(error, NG_BAD_ARGUMENT, "--data makes random data; --tensors, --x, --w and --dy bring their own");
    return NG_OK;
}

static ng_status check_backend(const ng_options *o, const ng_catalogue *catalogue, ng_error *error) {
    if (o->backend == NG_BACKENDS) return NG_OK;
    for (size_t i = 0; i < catalogue->count; i++)
        if ((int)catalogue->kernels[i]->backend == o->backend) return NG_OK;
    return ng_fail(error, NG_UNSUPPORTED, "--backend %s: this program was built without %s kernels",
                   backend_choices[o->backend], backend_choices[o->backend]);
}

/* ---- files --------------------------------------------------------------------------------------------------------*/
/* FILE or FILE:NAME; a file whose own name holds a colon is taken as it is if it exists. */
static ng_status split_name(const char *text, char **path, char **name, ng_error *error) {
    *path = strdup(text);
    if (!*path) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    if (!access(text, F_OK)) return NG_OK;
    for (char *colon = strrchr(*path, ':'); colon; colon = strrchr(*path, ':')) {
        *colon = 0;
        if (access(*path, F_OK)) continue;
        *name = strdup(text + (colon - *path) + 1);
        return *name ? NG_OK : ng_fail(error, NG_NO_MEMORY, "out of memory");
    }
    strcpy(*path, text);
    return NG_OK;
}

static ng_status open_file(const char *option, const char *text, bool one, ng_selected *s, int slot, ng_error *error) {
    size_t index;
    if (!text) return NG_OK;
    ng_status status = split_name(text, &s->paths[slot], &s->names[slot], error);
    if (!status) status = ng_tensor_file_open(s->paths[slot], &s->files[slot], error);
    if (status) return status;
    if (s->names[slot]) return ng_tensor_file_find(s->files[slot], s->names[slot], &index, error);
    if (one && ng_tensor_file_count(s->files[slot]) != 1)
        return ng_fail(error, NG_BAD_ARGUMENT, "--%s %s: holds %zu tensors; name one of them: %s:NAME", option,
                       s->paths[slot], ng_tensor_file_count(s->files[slot]), s->paths[slot]);
    return NG_OK;
}

static ng_status parse_data(const char *text, ng_distribution *data, ng_error *error) {
    size_t count = 0;
    for (const char *at = text;; at++) {
        char name[64];
        size_t length = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        ng_distribution one = NG_DISTRIBUTIONS;
        ng_error inner;
        if (ng_distribution_by_name(name, &one, &inner) || one == NG_FILE_TENSOR)
            return ng_fail(error, NG_BAD_ARGUMENT, "--data: %.900s",
                           one == NG_FILE_TENSOR ? "tensors of files come with --tensors, --x, --w, --dy" : inner.text);
        size_t i = 0;
        while (i < count && data[i] != one)
            i++;
        data[i] = one;
        if (i == count) count++;
        at += length;
        if (!*at) break;
    }
    data[count] = NG_DISTRIBUTIONS;
    return NG_OK;
}

/* FILE, or the name of a model that is installed with the program: llama3-8b. */
static ng_status load_model(const char *text, ng_model *model, ng_error *error) {
    char *name = NULL, *installed = NULL;
    if (!access(text, F_OK) || strchr(text, '/')) return ng_model_load(text, model, error);
    if (asprintf(&name, "models/%s.json", text) < 0) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    ng_status status = ng_installed_file(name, &installed);
    status = ng_model_load(status ? text : installed, model, error);
    free(installed);
    free(name);
    return status;
}

/* ---- the selection ------------------------------------------------------------------------------------------------*/
static ng_status load_inputs(const ng_options *o, ng_selected *s, ng_error *error) {
    ng_status status = NG_OK;
    if (o->model) status = load_model(o->model, &s->model, error);
    if (!status) status = open_file("tensors", o->tensors, false, s, 0, error);
    if (!status) status = open_file("x", o->x, true, s, 1, error);
    if (!status) status = open_file("w", o->w, true, s, 2, error);
    if (!status) status = open_file("dy", o->dy, true, s, 3, error);
    if (!status && o->data) status = parse_data(o->data, s->data, error);
    return status;
}

ng_status ng_select(const ng_program *program, const ng_options *o, const ng_args *args, ng_selected *s,
                    ng_error *error) {
    *s = (ng_selected){0};
    ng_status status = check_options(o, args, error);
    if (!status)
        status = ng_plugins_load(program->kernels, program->kernel_count, o->plugins.items, o->plugins.count, &s->plugins,
                                 error);
    if (status) goto done;
    s->catalogue = ng_plugins_catalogue(&s->plugins);
    status = check_backend(o, &s->catalogue, error);
    if (!status) status = load_inputs(o, s, error);
    if (status) goto done;
    s->selection = (ng_selection){
        .rows = program->rows, .row_count = program->row_count,
        .level = (ng_level)o->level, .seed = o->seed,
        .backends = o->backend == NG_BACKENDS ? (1u << NG_BACKENDS) - 1 : 1u << o->backend,
        .filters = o->filters.items, .filter_count = o->filters.count,
        .shape = {o->shape[0], o->shape[1], o->shape[2]},
        .model = o->model ? &s->model : NULL,
        .batch = o->batch, .sequence = o->sequence, .tensor_parallel = o->tensor_parallel,
        .x = s->files[1], .w = s->files[2], .dy = s->files[3], .tensors = s->files[0],
        .tensor_name = s->names[0], .x_name = s->names[1], .w_name = s->names[2], .dy_name = s->names[3],
        .recipes = program->recipes, .recipe = o->recipe ? o->recipe : o->budget ? "*" : NULL,
        .data = o->data ? s->data : NULL, .modes = o->modes, .full = o->full, .verify_on_cpu = o->verify == NG_VERIFY_CPU || o->save == NG_SAVE_ALWAYS,
    };
    status = ng_expand(&s->selection, &s->catalogue, &s->list, error);
done:
    if (status) ng_selected_free(s);
    return status;
}

void ng_selected_free(ng_selected *s) {
    ng_case_list_free(&s->list);
    for (int i = 0; i < 4; i++) {
        if (s->files[i]) ng_tensor_file_close(s->files[i]);
        free(s->names[i]);
        free(s->paths[i]);
    }
    ng_plugins_free(&s->plugins);
    *s = (ng_selected){0};
}
