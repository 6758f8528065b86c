#include "clients/pagoda_plan/parser.h"

int main(int argc, char** argv) { return pagoda::RunPagodaPlan(argc, argv); }
