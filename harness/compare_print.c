#include "harness/compare.h"

#include <math.h>
#include <string.h>

/* ---- the conclusion -----------------------------------------------------------------------------------------------*/
static void print_sides(FILE *out, const ng_comparison *c) {
    const ng_side *sides[2] = {&c->a, &c->b};
    for (int s = 0; s < 2; s++) {
        const ng_record_file *first = &sides[s]->records[0];
        fprintf(out, "%c: %s", 'A' + s, first->path);
        if (sides[s]->count > 1) fprintf(out, " and %zu more", sides[s]->count - 1);
        fprintf(out, " (%s, level %s, seed %llu, %zu cases)\n", first->started, ng_level_names[first->level], (unsigned long long)first->seed,
                c->cases[s]);
    }
}

/* "no regression: 1165 cases in common, 1165 with the same bits; speed: 900 same, 12 ambiguous" */
static void conclude(FILE *out, const ng_comparison *c, const ng_compare_options *o) {
    size_t gating = ng_gating(c, o), named = 0;
    if (gating) {
        fputs("regression:", out);
        for (int k = 0; k < NG_CHANGES; k++) {
            if (!c->counts[k] || !ng_change_words[k].gates || (k == NG_CHANGE_MOVED && o->allow_moved)) continue;
            fprintf(out, "%s %zu %s", named++ ? "," : "", c->counts[k], ng_change_words[k].word);
        }
        fputs("; ", out);
    } else fputs("no regression; ", out);
    if (!c->a.count) fprintf(out, "%zu cases, no baseline", c->cases[1]);
    else fprintf(out, "%zu cases in common, %zu with the same bits", c->common, c->same_bits);
    if (c->timed) {
        fputs("; speed:", out);
        for (int p = 0, shown = 0; p < NG_PACES; p++)
            if (c->paces[p]) fprintf(out, "%s %zu %s", shown++ ? "," : "", c->paces[p], ng_pace_names[p]);
    }
    fputc('\n', out);
    if (*c->speed_note) fprintf(out, "%s\n", c->speed_note);
}

/* ---- terminal -----------------------------------------------------------------------------------------------------*/
static bool is_quiet(ng_change change) { return change == NG_CHANGE_AMBIGUOUS || change == NG_CHANGE_APPEARED || change == NG_CHANGE_SHRANK; }

void ng_comparison_print(FILE *out, const ng_comparison *c, const ng_compare_options *o, size_t most) {
    print_sides(out, c);
    fputs(c->fact_count ? "\nWhat the runs ran on:\n" : "\nBoth ran on the same\n", out);
    for (size_t i = 0; i < c->fact_count; i++)
        fprintf(out, "  %s: %s -> %s\n", c->facts[i].name, c->facts[i].a, c->facts[i].b);
    for (size_t i = 0; i < c->finding_count;) {
        ng_change change = c->findings[i].change;
        size_t count = c->counts[change], shown = is_quiet(change) && most > 3 ? 3 : most;
        fprintf(out, "\n%s: %zu\n", ng_change_words[change].title, count);
        for (size_t k = 0; k < count && k < shown; k++) {
            const ng_finding *f = &c->findings[i + k];
            fprintf(out, "  %s%s%s\n", f->id, *f->id && *f->detail ? "\n      " : "", f->detail);
            if (ng_finding_gates(f, o) && f->repro && *f->repro) fprintf(out, "      %s\n", f->repro);
        }
        if (count > shown) fprintf(out, "  ... and %zu more; --json FILE has them all\n", count - shown);
        i += count;
    }
    fputc('\n', out);
    conclude(out, c, o);
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------*/
static void write_side(ng_json *json, const char *name, const ng_side *side) {
    ng_json_array(json, name);
    for (size_t r = 0; r < side->count; r++) {
        ng_json_object(json, NULL);
        ng_json_text(json, "path", side->records[r].path);
        ng_json_text(json, "run", side->records[r].run);
        ng_json_text(json, "started", side->records[r].started);
        ng_json_end_object(json);
    }
    ng_json_end_array(json);
}

void ng_comparison_json(ng_json *json, const ng_comparison *c, const ng_compare_options *o) {
    write_side(json, "a", &c->a);
    write_side(json, "b", &c->b);
    ng_json_bool(json, "regression", ng_gating(c, o) > 0);
    ng_json_array(json, "fingerprint");
    for (size_t i = 0; i < c->fact_count; i++) {
        ng_json_object(json, NULL);
        ng_json_text(json, "name", c->facts[i].name);
        ng_json_text(json, "a", c->facts[i].a);
        ng_json_text(json, "b", c->facts[i].b);
        ng_json_end_object(json);
    }
    ng_json_end_array(json);
    ng_json_object(json, "counts");
    ng_json_unsigned(json, "a", c->cases[0]);
    ng_json_unsigned(json, "b", c->cases[1]);
    ng_json_unsigned(json, "common", c->common);
    ng_json_unsigned(json, "same_bits", c->same_bits);
    for (int k = 0; k < NG_CHANGES; k++)
        ng_json_unsigned(json, ng_change_words[k].word, c->counts[k]);
    ng_json_end_object(json);
    ng_json_object(json, "speed");
    for (int p = 0; p < NG_PACES; p++)
        ng_json_unsigned(json, ng_pace_names[p], c->paces[p]);
    ng_json_text(json, "note", *c->speed_note ? c->speed_note : NULL);
    ng_json_end_object(json);
    ng_json_array(json, "findings");
    for (size_t i = 0; i < c->finding_count; i++) {
        const ng_finding *f = &c->findings[i];
        ng_json_object(json, NULL);
        ng_json_text(json, "change", ng_change_words[f->change].word);
        ng_json_bool(json, "gates", ng_finding_gates(f, o));
        ng_json_text(json, "id", *f->id ? f->id : NULL);
        ng_json_text(json, "detail", f->detail);
        ng_json_double(json, "size", f->size);
        ng_json_text(json, "repro", f->repro && *f->repro ? f->repro : NULL);
        ng_json_end_object(json);
    }
    ng_json_end_array(json);
}

/* ---- Markdown, for a pull request ---------------------------------------------------------------------------------*/
/* Text of a table's cell: no bar may end it. */
static void print_cell(FILE *out, const char *text) {
    for (; *text; text++) {
        if (*text == '|') fputc('\\', out);
        if (*text == '<') fputs("&lt;", out);
        else fputc(*text == '\n' ? ' ' : *text, out);
    }
}

static void print_code(FILE *out, const char *text) {
    fputc('`', out);
    for (; *text; text++)
        if (*text == '|') fputs("\\|", out);
        else fputc(*text == '`' || *text == '\n' ? '\'' : *text, out);
    fputc('`', out);
}

void ng_comparison_markdown(FILE *out, const ng_comparison *c, const ng_compare_options *o, const char *title) {
    enum { ROWS = 50 };
    fprintf(out, "### %s\n\n", title);
    conclude(out, c, o);
    if (c->fact_count) fputs("\n| ran on | A | B |\n| --- | --- | --- |\n", out);
    for (size_t i = 0; i < c->fact_count; i++) {
        fputs("| ", out);
        print_cell(out, c->facts[i].name);
        fputs(" | ", out);
        print_cell(out, c->facts[i].a);
        fputs(" | ", out);
        print_cell(out, c->facts[i].b);
        fputs(" |\n", out);
    }
    for (size_t i = 0; i < c->finding_count;) {
        ng_change change = c->findings[i].change;
        size_t count = c->counts[change];
        bool gates = ng_finding_gates(&c->findings[i], o);
        fprintf(out, "\n<details%s><summary>%s: %zu</summary>\n\n| case | |\n| --- | --- |\n", gates ? " open" : "", ng_change_words[change].title, count);
        for (size_t k = 0; k < count && k < ROWS; k++) {
            fputs("| ", out);
            print_code(out, c->findings[i + k].id);
            fputs(" | ", out);
            print_cell(out, c->findings[i + k].detail);
            fputs(" |\n", out);
        }
        if (count > ROWS) fprintf(out, "\nand %zu more\n", count - ROWS);
        fputs("\n</details>\n", out);
        i += count;
    }
}
