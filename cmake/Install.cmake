# cmake --install BUILD, and the target `uninstall`. Everything is found from its own place, so that the prefix may be
# moved; modules are in lib/ccstream, where formats/base/module_file.c looks for them beside bin.
include(GNUInstallDirs)
set(doc "${CMAKE_INSTALL_DATAROOTDIR}/doc/ccstream")

# Man pages and completions are made by the programs that were built. DATE honours SOURCE_DATE_EPOCH.
set(pages "${PROJECT_BINARY_DIR}/pages")
string(TIMESTAMP date "%Y-%m-%d" UTC)
set(programs ccpack ccdump ccstream-train ccstream-eval ccstream-export ccbench)
set(with_pages ${programs})
foreach(program IN ITEMS ccstream-report ccstudy)
  if(TARGET ${program})
    list(APPEND with_pages ${program})
  endif()
endforeach()
file(GLOB page_sources CONFIGURE_DEPENDS tools/cli/*.awk tools/cli/commands_of.sh)
if(NOT CMAKE_CROSSCOMPILING)
  add_custom_command(
    OUTPUT "${pages}/complete"
    COMMAND "${PROJECT_SOURCE_DIR}/tools/make-pages" "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" "${pages}"
            "${PROJECT_VERSION}" "${date}"
    COMMAND "${CMAKE_COMMAND}" -E touch "${pages}/complete"
    DEPENDS ${with_pages} "${PROJECT_SOURCE_DIR}/tools/make-pages" ${page_sources}
    COMMENT "Making man pages and completions"
    VERBATIM)
  add_custom_target(pages ALL DEPENDS "${pages}/complete")
endif()

install(TARGETS ${programs} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT ccstream)
if(TARGET ccstream-report) # with the Python package that it and ccstudy run, for themselves alone
  install(PROGRAMS "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/ccstream-report" DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT ccstream)
  file(GLOB studies CONFIGURE_DEPENDS tools/ccstudy/*.py tools/ccstudy/*.toml tools/inspect/page/viewer.js tools/inspect/page/viewer.css)
  install(FILES ${studies} DESTINATION lib/ccstream/python/ccstream/studies COMPONENT ccstream)
endif()
if(TARGET ccstudy)
  install(PROGRAMS "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/ccstudy" DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT ccstream)
  install(TARGETS ccstream_python LIBRARY DESTINATION lib/ccstream/python/ccstream COMPONENT ccstream)
  file(GLOB package CONFIGURE_DEPENDS bindings/python/src/ccstream/*.py)
  install(FILES ${package} DESTINATION lib/ccstream/python/ccstream COMPONENT ccstream)
endif()
foreach(kind IN ITEMS mpi gloo cuda)
  if(TARGET ccstream_${kind})
    install(TARGETS ccstream_${kind} LIBRARY DESTINATION lib/ccstream COMPONENT ccstream-${kind})
  endif()
endforeach()

# zsh of Debian reads site-functions in /usr/local, vendor-completions in /usr.
set(zsh_folder site-functions)
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr" AND EXISTS /etc/debian_version)
  set(zsh_folder vendor-completions)
endif()
set(share "${CMAKE_INSTALL_DATAROOTDIR}")
install(DIRECTORY "${pages}/man/" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT ccstream)
install(DIRECTORY "${pages}/bash/" DESTINATION "${share}/bash-completion/completions" COMPONENT ccstream)
install(DIRECTORY "${pages}/zsh/" DESTINATION "${share}/zsh/${zsh_folder}" COMPONENT ccstream)
install(DIRECTORY "${pages}/fish/" DESTINATION "${share}/fish/vendor_completions.d" COMPONENT ccstream)

if(NOT CCS_PACKAGES) # which name it changelog.gz
  install(FILES CHANGELOG.md DESTINATION "${doc}" COMPONENT ccstream)
endif()
install(FILES LICENSE DESTINATION "${doc}" COMPONENT ccstream)
install(FILES formats/tokenizer/clip/LICENSE DESTINATION "${doc}" RENAME LICENSE.clip COMPONENT ccstream)
install(DIRECTORY docs/ DESTINATION "${doc}/manual" COMPONENT ccstream
        FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.png" PATTERN reference EXCLUDE)
# Links into the source tree there, files here; so README.md's links lead to them. It names what is not installed without a link.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS README.md)
file(READ README.md readme)
file(GLOB_RECURSE references CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/docs" docs/reference/*.md)
list(REMOVE_ITEM references reference/changes.md)
foreach(page IN LISTS references)
  file(REAL_PATH "docs/${page}" source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
  get_filename_component(folder "${page}" DIRECTORY)
  get_filename_component(name "${page}" NAME)
  install(FILES "${source}" DESTINATION "${doc}/manual/${folder}" RENAME "${name}" COMPONENT ccstream)
  file(RELATIVE_PATH source "${PROJECT_SOURCE_DIR}" "${source}")
  string(REPLACE "](${source})" "](manual/${page})" readme "${readme}")
endforeach()
string(REPLACE "](docs/" "](manual/" readme "${readme}")
string(REPLACE "](bindings/c/examples)" "](examples/c)" readme "${readme}")
string(REGEX MATCHALL "\\[[^]]*\\]\\([^)]*\\)" links "${readme}")
foreach(link IN LISTS links)
  if(NOT link MATCHES "\\((manual/|examples/|LICENSE|https?:)" AND (CCS_PACKAGES OR NOT link MATCHES "CHANGELOG"))
    string(REGEX REPLACE "^\\[(.*)\\]\\(.*" "\\1" text "${link}")
    string(REPLACE "${link}" "${text}" readme "${readme}")
  endif()
endforeach()
file(GENERATE OUTPUT "${pages}/README.md" CONTENT "${readme}")
install(FILES "${pages}/README.md" DESTINATION "${doc}" COMPONENT ccstream)
install(DIRECTORY bindings/python/examples/ DESTINATION "${doc}/examples/python"
        COMPONENT ccstream FILES_MATCHING PATTERN "*.py")
install(DIRECTORY bindings/c/examples/ DESTINATION "${doc}/examples/c" COMPONENT ccstream)

add_custom_target(uninstall
  COMMAND "${CMAKE_COMMAND}" -D "BUILD=${PROJECT_BINARY_DIR}" -P "${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake"
  COMMENT "Removing what was installed" VERBATIM)
