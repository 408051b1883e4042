package record

// Interface counts what the collection asks of the helper: its commands, and the fields of
// a spec. Raise it with each new one that the collection relies on, here and in
// plugins/module_utils/_core/pcopy.py: a preflight then refuses a helper that lacks it,
// before anything is touched.
const Interface = 6
