/* `shapes`: the products that training one layer of a model takes. */
#include "harness/command.h"
#include "harness/model.h"
#include "harness/output.h"
#include "harness/record.h"

#include <stddef.h>
#include <stdlib.h>

typedef struct shapes_options {
    const char *model, *json;
    int64_t batch, sequence, tensor_parallel;
} shapes_options;

#define AT(member) .offset = offsetof(shapes_options, member)

static const ng_option rows[] = {
    {"model", 'm', NG_TEXT, "FILE", "a Hugging Face config.json (needed)", AT(model)},
    {"batch", 0, NG_COUNT, "B", "sequences in a batch (default 1)", AT(batch), .least = 1, .most = 1 << 30},
    {"seq", 0, NG_COUNT, "S", "tokens in a sequence (default 128)", AT(sequence), .least = 1, .most = 1 << 30},
    {"tensor-parallel", 0, NG_COUNT, "N", "one of N devices' share (default 1)", AT(tensor_parallel), .least = 1,
     .most = 1 << 20},
    {"json", 'o', NG_TEXT, "FILE|-", "the table as JSON", AT(json)},
};
enum { ROWS = sizeof rows / sizeof *rows };

static double gflop(const ng_model_product *p) {
    return 2e-9 * (double)p->m * (double)p->n * (double)p->k * (double)p->count;
}

static void print_table(const ng_model *model, const shapes_options *o, const ng_model_product *p, size_t count) {
    double total = 0;
    printf("%s, batch %lld, sequence %lld, tensor parallel %lld: products of one training step\n\n", model->name,
           (long long)o->batch, (long long)o->sequence, (long long)o->tensor_parallel);
    printf("%-16s %-6s %9s %9s %9s %7s %12s\n", "layer", "phase", "M", "N", "K", "count", "GFLOP");
    for (size_t i = 0; i < count; i++) {
        printf("%-16s %-6s %9lld %9lld %9lld %7lld %12.1f\n", p[i].layer, ng_phase_names[p[i].phase], (long long)p[i].m,
               (long long)p[i].n, (long long)p[i].k, (long long)p[i].count, gflop(&p[i]));
        total += gflop(&p[i]);
    }
    printf("%-16s %-6s %9s %9s %9s %7s %12.1f\n", "sum", "", "", "", "", "", total);
}

static void write_json(FILE *out, const ng_model *model, const shapes_options *o, const ng_model_product *p, size_t count) {
    ng_json json = {.out = out, .break_depth = 2};
    ng_json_object(&json, NULL);
    ng_json_text(&json, "schema", "narrowgauge.shapes/1");
    ng_json_text(&json, "model", model->name);
    ng_json_integer(&json, "batch", o->batch);
    ng_json_integer(&json, "sequence", o->sequence);
    ng_json_integer(&json, "tensor_parallel", o->tensor_parallel);
    ng_json_array(&json, "products");
    for (size_t i = 0; i < count; i++) {
        ng_json_object(&json, NULL);
        ng_json_text(&json, "layer", p[i].layer);
        ng_json_text(&json, "phase", ng_phase_names[p[i].phase]);
        ng_json_integer(&json, "m", p[i].m);
        ng_json_integer(&json, "n", p[i].n);
        ng_json_integer(&json, "k", p[i].k);
        ng_json_integer(&json, "count", p[i].count);
        ng_json_double(&json, "gflop", gflop(&p[i]));
        ng_json_end_object(&json);
    }
    ng_json_end_array(&json);
    ng_json_end_object(&json);
    fputc('\n', out);
}

static ng_status list_products(const ng_model *model, const shapes_options *o, ng_model_product **products,
                               size_t *count, ng_error *error) {
    ng_status status = ng_model_products(model, o->batch, o->sequence, o->tensor_parallel, NULL, 0, count, error);
    if (status) return status;
    *products = calloc(*count + 1, sizeof **products);
    if (!*products) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    return ng_model_products(model, o->batch, o->sequence, o->tensor_parallel, *products, *count, count, error);
}

int ng_command_shapes(const ng_program *program, int argc, char **argv) {
    shapes_options options = {.batch = 1, .sequence = 128, .tensor_parallel = 1};
    ng_args args = {0};
    ng_model model = {0};
    ng_model_product *products = NULL;
    ng_output json = {0};
    size_t count = 0;
    ng_error error = {0};
    ng_status status = ng_args_parse(rows, ROWS, argc, argv, &options, &args, &error);
    if (!status && args.help) {
        ng_command_usage(stdout, program, "shapes", "Prints the matrix products that one training step of a model takes:\n"
                         "OUT[M][N] = sum over K of A[M][K] B[N][K], by layer and phase.");
        ng_args_help(stdout, rows, ROWS);
        goto done;
    }
    if (!status && !options.model) status = ng_fail(&error, NG_BAD_ARGUMENT, "--model FILE is needed");
    if (!status) status = ng_model_load(options.model, &model, &error);
    if (!status) status = list_products(&model, &options, &products, &count, &error);
    if (!status) status = ng_output_open(options.json, &json, &error);
    if (status) goto done;
    if (json.stream) write_json(json.stream, &model, &options, products, count);
    else print_table(&model, &options, products, count);
    status = ng_output_commit(&json, &error);
done:
    ng_output_discard(&json);
    free(products);
    ng_args_free(rows, ROWS, &options, &args);
    return status ? ng_no_verdict(program, "shapes", error.text) : NG_EXIT_OK;
}
