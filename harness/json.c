#include "harness/json.h"
#include "harness/text.h"

#include <inttypes.h>
#include <math.h>

void ng_json_quote(FILE *out, const char *value) {
    fputc('"', out);
    while (*value) {
        unsigned char c = (unsigned char)*value;
        size_t length = ng_utf8_length(value);
        if (!length) {
            fputs("\xEF\xBF\xBD", out); /* U+FFFD */
            length = 1;
        } else if (c == '"' || c == '\\') fprintf(out, "\\%c", c);
        else if (c == '\n') fputs("\\n", out);
        else if (c == '\t') fputs("\\t", out);
        else if (c < 0x20 || c == 0x7F) fprintf(out, "\\u%04x", c);
        else fwrite(value, 1, length, out);
        value += length;
    }
    fputc('"', out);
}

static void begin_line(ng_json *json) {
    fputc('\n', json->out);
    for (int i = 0; i < json->depth; i++)
        fputc(' ', json->out);
}

/* What precedes every value: comma, line break, name. */
static void introduce(ng_json *json, const char *name) {
    if (json->follows) fputc(',', json->out);
    if (json->depth > 0 && json->depth <= json->break_depth) begin_line(json);
    else if (json->follows) fputc(' ', json->out);
    json->follows = true;
    if (!name) return;
    ng_json_quote(json->out, name);
    fputs(": ", json->out);
}

static void open_bracket(ng_json *json, const char *name, char bracket) {
    introduce(json, name);
    fputc(bracket, json->out);
    json->depth++;
    json->follows = false;
}

static void close_bracket(ng_json *json, char bracket) {
    json->depth--;
    if (json->follows && json->depth < json->break_depth) begin_line(json);
    fputc(bracket, json->out);
    json->follows = true;
}

void ng_json_object(ng_json *json, const char *name) { open_bracket(json, name, '{'); }
void ng_json_end_object(ng_json *json) { close_bracket(json, '}'); }
void ng_json_array(ng_json *json, const char *name) { open_bracket(json, name, '['); }
void ng_json_end_array(ng_json *json) { close_bracket(json, ']'); }

void ng_json_text(ng_json *json, const char *name, const char *value) {
    introduce(json, name);
    if (value) ng_json_quote(json->out, value);
    else fputs("null", json->out);
}

void ng_json_double(ng_json *json, const char *name, double value) {
    introduce(json, name);
    if (isfinite(value)) fprintf(json->out, "%.17g", value);
    else if (!json->exact) fputs("null", json->out);
    else fputs(isnan(value) ? "\"nan\"" : value > 0 ? "\"inf\"" : "\"-inf\"", json->out);
}

void ng_json_integer(ng_json *json, const char *name, int64_t value) {
    introduce(json, name);
    fprintf(json->out, "%" PRId64, value);
}

void ng_json_unsigned(ng_json *json, const char *name, uint64_t value) {
    introduce(json, name);
    fprintf(json->out, "%" PRIu64, value);
}

void ng_json_bool(ng_json *json, const char *name, bool value) {
    introduce(json, name);
    fputs(value ? "true" : "false", json->out);
}

void ng_json_null(ng_json *json, const char *name) { ng_json_text(json, name, NULL); }
