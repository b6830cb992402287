/* The command `replay`: recorded tensor-core steps through a contract, and what the record is worth: a set that no
 * neighbouring model fails says nothing, and is called vacuous. */
#include "suites/replay.h"

#include "kernels/contracts.h"
#include "reference/predict.h"
#include "suites/vectors.h"

#include <stdio.h>
#include <string.h>

/* ---- the power of a set -------------------------------------------------------------------------------------------*/
typedef enum ng_change { FEWER_FRACTION, MORE_FRACTION, HALF_GROUP, DOUBLE_GROUP, FEWER_OUTPUT, MORE_OUTPUT, CHANGES } ng_change;

/* The neighbouring model, or false where there is none. */
static bool changed(const ng_mma *from, ng_change change, ng_mma *to)
{
    *to = *from;
    switch (change) {
    case FEWER_FRACTION: to->fraction_bits--; break;
    case MORE_FRACTION: to->fraction_bits++; break;
    case HALF_GROUP: to->group = (uint16_t)(from->group / 2); break;
    case DOUBLE_GROUP:
        to->group = (uint16_t)(from->group * 2);
        if (to->k < to->group) to->k = to->group;
        break;
    case FEWER_OUTPUT: to->output_bits--; break;
    case MORE_OUTPUT: to->output_bits++; break;
    case CHANGES: return false;
    }
    bool regrouped = change == HALF_GROUP || change == DOUBLE_GROUP;
    return ng_mma_is_defined(to) && !(regrouped && from->interleave) && !(regrouped && from->dot);
}

/* A result of binary32's own width is no choice of the adder: that its last bit is used says nothing of how it adds. */
static bool counts(const ng_mma *mma, ng_change change)
{
    return (change != FEWER_OUTPUT && change != MORE_OUTPUT) || mma->output_bits < 23;
}

static void print_change(const ng_mma *mma, ng_change change, size_t differ)
{
    if (change == FEWER_FRACTION || change == MORE_FRACTION) printf("  fraction bits %d breaks %zu\n", mma->fraction_bits, differ);
    else if (change == HALF_GROUP || change == DOUBLE_GROUP) printf("  groups of %d break %zu\n", mma->group, differ);
    else printf("  output bits %d breaks %zu\n", mma->output_bits, differ);
}

/* How many rows each neighbouring model breaks; *power is the largest that counts. */
static ng_status measure_power(const ng_vectors *v, const ng_mma *mma, size_t *power)
{
    *power = 0;
    for (int change = 0; change < CHANGES; change++) {
        ng_mma other;
        size_t differ;
        if (!changed(mma, (ng_change)change, &other)) continue;
        ng_status status = ng_vectors_replay(v, &other, 0, NULL, NULL, &differ);
        if (status) return status;
        print_change(&other, (ng_change)change, differ);
        if (differ > *power && counts(mma, (ng_change)change)) *power = differ;
    }
    return NG_OK;
}

/* ---- the command --------------------------------------------------------------------------------------------------*/
typedef struct replay_options {
    const char *contract;
    int64_t fraction_bits, group, output_bits;
} replay_options;

#define OPTION(name, kind, value, help, member, least, most) \
    {name, 0, kind, value, help, offsetof(replay_options, member), NULL, least, most, false}
static const ng_option replay_table[] = {
    OPTION("contract", NG_TEXT, "NAME", "the model, \"hopper-wgmma-fp8\" (required)", contract, 0, 0),
    OPTION("fraction-bits", NG_COUNT, "F", "fraction bits that addends keep, in place of the contract's", fraction_bits, 1, 48),
    OPTION("group", NG_COUNT, "G", "products added at once, in place of the contract's", group, 1, NG_MAX_STEP),
    OPTION("output-bits", NG_COUNT, "P", "fraction bits of the result, in place of the contract's", output_bits, 1, 23),
};
enum { OPTION_COUNT = sizeof replay_table / sizeof *replay_table };

/* Takes the first word that is neither an option nor its value out of argv; every option here has a value. */
static const char *take_file(int *argc, char **argv)
{
    for (int i = 1; i < *argc; i++) {
        if (!strcmp(argv[i], "--") && i + 1 < *argc) continue;
        if (argv[i][0] == '-' && argv[i][1]) {
            bool alone = !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h") || strchr(argv[i], '=');
            i += !alone;
            continue;
        }
        const char *file = argv[i];
        memmove(argv + i, argv + i + 1, (size_t)(*argc - i - 1) * sizeof *argv);
        --*argc;
        return file;
    }
    return NULL;
}

static ng_status find_contract(const char *name, ng_format_id format, const char *path, ng_mma *mma, ng_error *error)
{
    char known[1024] = "";
    size_t used = 0;
    if (!name) return ng_fail(error, NG_BAD_ARGUMENT, "--contract NAME is missing");
    const ng_named_contract *contract = ng_contract_by_name(name);
    for (size_t i = 0; i < ng_named_contract_count && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", ng_named_contracts[i].name);
    if (!contract) return ng_fail(error, NG_BAD_ARGUMENT, "unknown contract '%.64s'; known: %s", name, known);
    if (contract->sum.order != NG_SUM_MMA)
        return ng_fail(error, NG_BAD_ARGUMENT, "contract %s is not made of tensor-core steps", name);
    for (const ng_format_id *f = contract->in; *f != NG_NO_FORMAT; f++)
        if (*f == format) {
            *mma = contract->sum.mma;
            return NG_OK;
        }
    return ng_fail(error, NG_BAD_ARGUMENT, "contract %s is not defined for %s, which %s holds", name, ng_formats[format].name, path);
}

static ng_status override(const replay_options *o, ng_mma *mma, ng_error *error)
{
    if (o->fraction_bits) mma->fraction_bits = (uint8_t)o->fraction_bits;
    if (o->output_bits) mma->output_bits = (uint8_t)o->output_bits;
    if (o->group) {
        mma->group = (uint16_t)o->group;
        if (mma->k % mma->group) mma->k = mma->group;
    }
    if (ng_mma_is_defined(mma)) return NG_OK;
    return ng_fail(error, NG_BAD_ARGUMENT, "--group %d does not fit this contract's steps of %d", mma->group, mma->k);
}

enum { SHOWN = 5 };

static ng_status replay(const char *path, const replay_options *options, int *exit_status, ng_error *error)
{
    ng_vectors vectors;
    ng_mma mma;
    size_t places[SHOWN], differ = 0, power = 0;
    uint32_t computed[SHOWN];
    ng_status status = ng_vectors_read(path, &vectors, error);
    if (status) return status;
    status = find_contract(options->contract, vectors.format, path, &mma, error);
    if (!status) status = override(options, &mma, error);
    if (status) goto done;
    status = ng_vectors_replay(&vectors, &mma, SHOWN, places, computed, &differ);
    if (status) {
        status = ng_fail(error, status, "%s: contract %s does not define these steps", path, options->contract);
        goto done;
    }
    printf("%zu of %zu rows differ\n", differ, vectors.count);
    for (size_t i = 0; i < differ && i < SHOWN; i++)
        printf("  line %zu: recorded %08x, computed %08x\n", vectors.lines[places[i]], vectors.d[places[i]], computed[i]);
    *exit_status = differ ? NG_EXIT_REGRESSION : NG_EXIT_OK;
    if (differ) goto done;
    status = measure_power(&vectors, &mma, &power);
    if (!status && !power) {
        printf("vacuous: no neighbouring way of adding breaks a row\n");
        *exit_status = NG_EXIT_REGRESSION;
    }
done:
    ng_vectors_free(&vectors);
    return status;
}

int ng_command_replay(const ng_program *program, int argc, char **argv)
{
    replay_options options = {0};
    ng_args args = {0};
    ng_error error = {0};
    int result = NG_EXIT_OK;
    const char *path = take_file(&argc, argv);
    ng_status status = ng_args_parse(replay_table, OPTION_COUNT, argc, argv, &options, &args, &error);
    if (!status && args.help) {
        ng_command_usage(stdout, program, "replay FILE", "Computes recorded tensor-core steps by a contract's model and counts the rows that differ.\n"
                         "Without a difference, says how many rows each neighbouring model would break.");
        ng_args_help(stdout, replay_table, OPTION_COUNT);
    } else if (!status && !path) {
        status = ng_fail(&error, NG_BAD_ARGUMENT, "which FILE of recorded steps?");
    } else if (!status) {
        status = replay(path, &options, &result, &error);
    }
    ng_args_free(replay_table, OPTION_COUNT, &options, &args);
    return status ? ng_no_verdict(program, "replay", error.text) : result;
}
