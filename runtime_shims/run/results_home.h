// The home of all that the tool makes, where other programs load the package:
// aoti_debug/base/machine/files/results_home.py is the same for the commands.
#pragma once

#include <string>

namespace aoti_debug {

// Makes the folder for runs in the home, and the home with its marker where there is none.
//
// `home`: what AOTI_DEBUG_HOME names; "" for the default in the working directory. `path` is the folder; on an error,
// what could not be made. 0, or an errno: ENOTEMPTY for a directory without the marker that holds something else.
int make_runs_folder(const std::string& home, std::string* path);

}  // namespace aoti_debug
