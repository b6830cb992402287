#include "harness/result.h"

const char *const ng_verdict_names[NG_VERDICTS] = {
    [NG_PASS] = "pass",       [NG_FAIL] = "fail", [NG_MOVED] = "moved", [NG_CRASH] = "crash",
    [NG_TIMEOUT] = "timeout", [NG_SKIP] = "skip", [NG_XFAIL] = "xfail", [NG_XPASS] = "xpass",
    [NG_FLAKE] = "flake",     [NG_VACUOUS] = "vacuous",
};
