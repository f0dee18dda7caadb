/* A build without the page. */
#include "wire_ui.h"

const struct wire_ui_file wire_ui_files[1] = {{.name = ""}};
const size_t wire_ui_file_count = 0;
