# cython: language_level=3, boundscheck=False, wraparound=False
"""The hot loop of pubsubd, compiled: cuts a read into runs of frames with the same receivers.

It knows nothing of its own: what it does not find in the daemon's tables, or is not a whole frame
in the usual form, it leaves to the loop in pubsubd/broker/broker.py, which finds the same runs.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from libc.string cimport memcmp

cdef extern from "string.h" nogil:
    void *memmem(const void *, size_t, const void *, size_t)

FORM = 2
"""Counts the changes of what :func:`scan` takes and returns."""

cdef enum:
    LF = 10
    CR = 13
    SPACE = 32
    SLASH = 47
    ZERO = 48
    NINE = 57
    MAX_NAME = 1024
    MAX_DIGITS = 10
    MAX_RUNS = 512  # between two looks at the clock


def scan(
    bytes buf,
    Py_ssize_t at,
    dict routes,
    tuple plain,
    object nobody,
    Py_ssize_t max_new,
    Py_ssize_t max_payload,
):
    """Return the runs that begin at ``buf[at]``, an LF, and how many names were matched for them.

    A run is its receivers, its bytes, how many frames these are, and the offset of the LF that
    ends it. The last one ends before what has to be looked at in another way, or is not whole.

    Args:
        buf: what was read.
        at: where to begin.
        routes: header, with the LF before it -> an object with its receivers as ``targets``.
        plain: all substrings, each with its receivers; None if these are not easily told. Empty
            if something else decides, too: then, and where a name is not ASCII or begins with a
            slash, or receivers are not easily told, they are looked up in ``routes``.
        nobody: the receivers of a name with none of these.
        max_new: names that may be matched.
        max_payload: bytes of data in a frame whose name is matched.
    """
    cdef const char *text = PyBytes_AS_STRING(buf)
    cdef const char *before = NULL  # the header of the last frame
    cdef Py_ssize_t end = PyBytes_GET_SIZE(buf)
    cdef Py_ssize_t start = at + 1, count = 0, new = 0
    cdef Py_ssize_t width = 0, length = 0  # of the last frame, and of its header
    cdef Py_ssize_t head, gap, stop, last, size, limit, i
    cdef list runs = []
    cdef object targets = None, found
    cdef bytes key
    cdef bint simple
    cdef void *route
    while True:
        if width and at + length < end and memcmp(text + at, before, width) == 0:
            if text[at + length] != LF:
                break
            at += length
            count += 1
            continue
        head = at + 5
        if head >= end or memcmp(text + at, b"\npub ", 5) != 0:
            break
        gap, limit, simple = head, min(end, head + MAX_NAME + 1), text[head] != SLASH
        while gap < limit and text[gap] != SPACE and text[gap] != LF and text[gap] != CR:
            simple = simple and <unsigned char>text[gap] < 128
            gap += 1
        if gap == head or gap == limit or text[gap] != SPACE:
            break
        stop, size, limit = gap + 1, 0, min(end, gap + 1 + MAX_DIGITS)
        while stop < limit and ZERO <= text[stop] <= NINE:
            size = size * 10 + text[stop] - ZERO
            stop += 1
        if stop == gap + 1 or stop >= end or text[stop] != SPACE:
            break
        stop += 1
        last = stop + size
        if last >= end or text[last] != LF:
            break
        found = None
        if simple and plain and size <= max_payload:
            if new >= max_new:
                break
            found = _find(text + head, gap - head, plain, nobody)
            new += 1
        if found is None:
            key = PyBytes_FromStringAndSize(text + at, stop - at)
            route = <void *>PyDict_GetItemWithError(routes, key)
            if route == NULL:
                break
            found = (<object>route).targets
        if found is not targets:
            if found.special:
                break
            if count:
                runs.append((targets, buf[start : at + 1], count, at))
                if len(runs) >= MAX_RUNS:
                    return runs, new
            targets, start, count = found, at + 1, 0
        before, width, length = text + at, stop - at, last - at
        at = last
        count += 1
    if count:
        runs.append((targets, buf[start : at + 1], count, at))
    return runs, new


cdef object _find(const char *name, Py_ssize_t size, tuple plain, object nobody):
    """Return who gets a name; None if that has to be found in another way."""
    cdef object found = nobody, alone
    cdef bytes substring
    for substring, alone in plain:
        if memmem(name, size, PyBytes_AS_STRING(substring), PyBytes_GET_SIZE(substring)) != NULL:
            if found is not nobody or alone is None:
                return None
            found = alone
    return found
