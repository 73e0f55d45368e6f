// Where this library was loaded from. torch's loaders unpack a package into a temporary directory and do not tell the
// library where the package lies; what the process shows of it while it loads is kept.
#pragma once

#include <string>

namespace aoti_debug {

// The absolute path of this library, and the .pt2 files that the process had open when it was loaded, or that its
// command line names: a member of run.json, with a comma before it. "" where AOTI_DEBUG_RUN names the run's directory:
// whoever has made that knows the package.
std::string loaded_from_json();

}  // namespace aoti_debug
