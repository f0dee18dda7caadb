/* agent/inside/agent_applet.h: the agent's binary as a command of a run: `<agent> file VERB …`, see agent_files.h. */
#ifndef BERTH_AGENT_APPLET_H
#define BERTH_AGENT_APPLET_H

/* From the verb on. Returns the exit status. May block on a disk: never called in process 1. */
int agent_applet_file(int argc, char *const *argv);

#endif
