/* `list`: what `run` with the same options would run. */
#include "harness/output.h"
#include "harness/record.h"
#include "harness/select.h"

static void write_json(FILE *out, const ng_case_list *list) {
    ng_json json = {.out = out, .break_depth = 2};
    ng_json_object(&json, NULL);
    ng_json_text(&json, "schema", "narrowgauge.list/1");
    ng_json_array(&json, "cases");
    for (size_t i = 0; i < list->count; i++) {
        const ng_case *one = &list->cases[i];
        char format[64];
        ng_kernel_format(one->kernel, format, sizeof format);
        ng_json_object(&json, NULL);
        ng_json_text(&json, "id", one->id);
        ng_json_text(&json, "op", ng_op_names[one->kernel->op]);
        ng_json_text(&json, "format", format);
        ng_json_text(&json, "backend", ng_backend_names[one->kernel->backend]);
        ng_json_text(&json, "kernel", one->kernel->name);
        ng_json_text(&json, "problem", one->problem_name);
        ng_json_text(&json, "data", ng_distribution_names[one->data.distribution]);
        ng_json_text(&json, "mode", ng_mode_names[one->mode]);
        ng_json_text(&json, "level", ng_level_names[one->level]);
        ng_json_text(&json, "suite", one->suite);
        ng_json_end_object(&json);
    }
    ng_json_end_array(&json);
    ng_json_end_object(&json);
    fputc('\n', out);
}

int ng_command_list(const ng_program *program, int argc, char **argv) {
    ng_options options = ng_default_options();
    ng_args args = {0};
    ng_selected selected = {0};
    ng_output json = {0};
    ng_error error = {0};
    ng_status status = ng_args_parse(ng_option_rows, ng_select_option_count, argc, argv, &options, &args, &error);
    if (!status && args.help) {
        ng_command_usage(stdout, program, "list", "Prints the ids of the cases that `run` with the same options would run.");
        ng_args_help(stdout, ng_option_rows, ng_select_option_count);
        goto done;
    }
    if (!status) status = ng_output_open(options.json, &json, &error);
    if (!status) status = ng_select(program, &options, &args, &selected, &error);
    if (status) goto done;
    if (json.stream) write_json(json.stream, &selected.list);
    else
        for (size_t i = 0; i < selected.list.count; i++)
            puts(selected.list.cases[i].id);
    status = ng_output_commit(&json, &error);
done:
    ng_output_discard(&json);
    ng_selected_free(&selected);
    ng_args_free(ng_option_rows, ng_run_option_count, &options, &args);
    return status ? ng_no_verdict(program, "list", error.text) : NG_EXIT_OK;
}
