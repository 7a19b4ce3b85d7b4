# Debian packages by CPack, one for each component: cmake --preset package && cmake --build --preset package && (cd
# build/package && cpack). Dependencies come from dpkg-shlibdeps, except those of ccstream-cuda: CUDA and cuDNN are not
# in Debian's main archive.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ccstream)
set(CPACK_PACKAGE_VENDOR "the authors of ccstream")
# Whoever makes packages answers for them, by the variables of Debian's own tools.
set(maintainer "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
if(NOT DEFINED ENV{DEBFULLNAME} OR NOT DEFINED ENV{DEBEMAIL})
  set(maintainer "unknown <unknown@localhost>")
  message(STATUS "packages: DEBFULLNAME and DEBEMAIL are not set: the maintainer is ${maintainer}")
endif()
set(CPACK_PACKAGE_CONTACT "${maintainer}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL ccstream libccstream libccstream-dev)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)

# ccs_package(<component> <package> <section> <summary> <text>): `text` has the lines of the long description.
macro(ccs_package component package section summary text)
  string(TOUPPER "${component}" name)
  set(CPACK_DEBIAN_${name}_PACKAGE_NAME ${package})
  set(CPACK_DEBIAN_${name}_PACKAGE_SECTION ${section})
  set(CPACK_COMPONENT_${name}_DESCRIPTION "${summary}\n${text}")
  set(CPACK_DEBIAN_${name}_DESCRIPTION "${summary}\n${text}")
  foreach(file IN ITEMS copyright changelog.Debian.gz)
    install(FILES "${PROJECT_BINARY_DIR}/debian/${file}"
            DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/${package}" COMPONENT ${component})
  endforeach()
endmacro()

string(JOIN "\n" about
  "ccstream packs images with captions into indexed shards, loads them in an"
  "order that can be reproduced and resumed exactly, and trains image-text models"
  "with CLIP, SogCLR, NUCLR and other contrastive losses.")
ccs_package(ccstream ccstream science "train image-text models with global contrastive losses"
  "${about}\n.\nThis package has the programs, with man pages and completions.")
ccs_package(libccstream libccstream0 libs "packed image-text data and contrastive losses, C library"
  "${about}\n.\nThis package has the shared library.")
ccs_package(libccstream-dev libccstream-dev libdevel "packed image-text data and contrastive losses, development files"
  "${about}\n.\nThis package has the header, and what CMake and pkg-config need.")
set(CPACK_DEBIAN_LIBCCSTREAM-DEV_PACKAGE_DEPENDS "libccstream0 (= ${PROJECT_VERSION}-1)")
# Both load libcurl when the first address is opened, so that dpkg-shlibdeps does not see it.
set(CPACK_DEBIAN_LIBCCSTREAM_PACKAGE_RECOMMENDS "libcurl4 | libcurl3-gnutls, ca-certificates")
set(CPACK_DEBIAN_CCSTREAM_PACKAGE_RECOMMENDS "${CPACK_DEBIAN_LIBCCSTREAM_PACKAGE_RECOMMENDS}")
if(TARGET ccstream-report)
  string(APPEND CPACK_DEBIAN_CCSTREAM_PACKAGE_RECOMMENDS ", python3 (>= 3.11)")
endif()
if(TARGET ccstudy) # the only program that needs these, with the shared library, of another component
  string(APPEND CPACK_DEBIAN_CCSTREAM_PACKAGE_RECOMMENDS
         ", libccstream0 (= ${PROJECT_VERSION}-1), python3-numpy, python3-scipy, python3-matplotlib")
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}/lib")
endif()
set(CPACK_DEBIAN_CCSTREAM_PACKAGE_SUGGESTS "libccstream-dev, ccstream-mpi, ccstream-gloo, ccstream-cuda")
set(CPACK_DEBIAN_LIBCCSTREAM_PACKAGE_CONTROL_EXTRA "${PROJECT_BINARY_DIR}/debian/triggers;${PROJECT_BINARY_DIR}/debian/shlibs")
if(TARGET ccstream_mpi)
  list(APPEND CPACK_COMPONENTS_ALL ccstream-mpi)
  ccs_package(ccstream-mpi ccstream-mpi science "train image-text models with global contrastive losses, MPI"
    "${about}\n.\nThis package has the module with which ccstream-train runs under\nmpirun and srun.")
  set(CPACK_DEBIAN_CCSTREAM-MPI_PACKAGE_DEPENDS "ccstream (= ${PROJECT_VERSION}-1)")
endif()
if(TARGET ccstream_gloo)
  list(APPEND CPACK_COMPONENTS_ALL ccstream-gloo)
  ccs_package(ccstream-gloo ccstream-gloo science "train image-text models with global contrastive losses, Gloo"
    "${about}\n.\nThis package has the module with which ccstream-train runs under\ntorchrun, and under srun without MPI.")
  set(CPACK_DEBIAN_CCSTREAM-GLOO_PACKAGE_DEPENDS "ccstream (= ${PROJECT_VERSION}-1)")
endif()
if(TARGET ccstream_cuda)
  list(APPEND CPACK_COMPONENTS_ALL ccstream-cuda)
  ccs_package(ccstream-cuda ccstream-cuda contrib/science "train image-text models with global contrastive losses, CUDA"
    "${about}\n.\nThis package has the module for NVIDIA GPUs. It needs NVIDIA's driver, cuBLAS\nand cuDNN, of which the program names what is missing.")
  set(CPACK_DEBIAN_CCSTREAM-CUDA_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_DEBIAN_CCSTREAM-CUDA_PACKAGE_DEPENDS "ccstream (= ${PROJECT_VERSION}-1), libc6, libstdc++6")
  get_property(cuda GLOBAL PROPERTY CCS_CUDA_VERSION) # names of NVIDIA's packages
  string(REGEX REPLACE "^([0-9]+)\\.([0-9]+).*" "libcublas-\\1-\\2, libcudnn9-cuda-\\1" cuda "${cuda}")
  set(CPACK_DEBIAN_CCSTREAM-CUDA_PACKAGE_RECOMMENDS "${cuda}")
endif()

# Copyright and changelogs as Debian's policy has them. The date honours SOURCE_DATE_EPOCH.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE "${PROJECT_BINARY_DIR}/debian/changelog.Debian"
  "ccstream (${PROJECT_VERSION}-1) unstable; urgency=medium\n\n  * See changelog.gz in /usr/share/doc/ccstream.\n\n"
  " -- ${maintainer}  ${date}\n")
configure_file(CHANGELOG.md "${PROJECT_BINARY_DIR}/debian/changelog" COPYONLY)
execute_process(COMMAND gzip -9nfk changelog changelog.Debian
                WORKING_DIRECTORY "${PROJECT_BINARY_DIR}/debian" COMMAND_ERROR_IS_FATAL ANY)
install(FILES "${PROJECT_BINARY_DIR}/debian/changelog.gz" DESTINATION "${doc}" COMPONENT ccstream)
file(WRITE "${PROJECT_BINARY_DIR}/debian/copyright"
  "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: ccstream\n\n"
  "Files: *\nCopyright: 2025-2026 the authors of ccstream\nLicense: Apache-2.0\n On Debian systems, the text of the licence is in\n"
  " /usr/share/common-licenses/Apache-2.0.\n\n"
  "Files: formats/tokenizer/clip/merges.bin\nCopyright: 2021 OpenAI\nLicense: Expat\n See LICENSE.clip in this folder.\n")
file(WRITE "${PROJECT_BINARY_DIR}/debian/triggers" "activate-noawait ldconfig\n")
file(WRITE "${PROJECT_BINARY_DIR}/debian/shlibs" "libccstream 0 libccstream0 (>= ${PROJECT_VERSION})\n")
include(CPack)
