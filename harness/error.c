#include "harness/error.h"

#include <stdarg.h>
#include <stdio.h>

ng_status ng_fail(ng_error *error, ng_status status, const char *format, ...) {
    if (!error) return status;
    error->status = status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    for (char *c = error->text; *c; c++) /* one line, whatever a file's name holds */
        if (*c == '\n' || *c == '\r') *c = ' ';
    return status;
}
