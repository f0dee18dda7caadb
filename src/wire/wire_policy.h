/* wire/wire_policy.h: a policy document: what PUT /policy takes, what is remembered of it, what the overrides file holds.
 *
 * All three have one grammar (wires/sandboxd-current.md, 4.2): absent is left alone, null is none, a field that is not writable is
 * wrong. Never blocks. Threads: one owner.
 */
#ifndef BERTH_WIRE_POLICY_H
#define BERTH_WIRE_POLICY_H

#include "policy_change.h"
#include "wire_read.h"

/* Reads a document; what is wrong with it goes to reader->invalid. Strings are borrowed from it. Free with
 * wire_policy_change_done() in every case. */
void wire_policy_read(const struct wire_reader *reader, struct policy_change *ret);
void wire_policy_change_done(struct policy_change *change);
#define auto_policy_change auto_cleanup(wire_policy_change_done)

/* Puts every field of `change` into `document`, the runtimes' each in its place. Both are objects that were read before. */
void wire_policy_merge(struct json_object *document, struct json_object *change);

/* Takes out of `document` what names a runtime that `policy` does not allow: true if there was one. */
bool wire_policy_prune(struct json_object *document, const struct policy *policy);

#endif
