#include "clients/pagoda_engine/program.h"

int main(int argc, char** argv) { return pagoda::RunPagodaEngine(argc, argv); }
